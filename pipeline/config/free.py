"""Settings that the numbers of a run do not depend on.

They may change between the parts of one run, and they alone may come from the environment: a run
folder holds ``${oc.env:NAME}`` as that text, from which nobody can tell later what was run.

Some change the order in which sums are taken, and with it the last digits of fp32 (the tests hold
losses to 1e-5); none changes what is learned, from what, or what is measured.
"""

# where things are kept and shown; how many rows and checkpoints there are
_APART = ("data.prepared", "data.workers", "trainer.log_every", "trainer.save_every",
          "trainer.keep", "trainer.keep_best", "trainer.hang_timeout")  # fmt: skip
# how the work is shared and computed
_SHARED = ("trainer.processes", "trainer.nodes", "trainer.sequence_parallel", "trainer.ring",
           "trainer.zero_stage", "trainer.threads", "trainer.accumulate", "trainer.accelerator",
           "model.activation_checkpointing", "model.tiled_mlp", "model.attention_path")  # fmt: skip
# paths whose content is kept by its hash
_PLACES = ("runs", "data.source", "init_from")


def may_change(key: str) -> bool:
    """Whether a run may go on with another value of this setting."""
    return key in (*_APART, *_SHARED) or key.startswith("wandb.")


def may_be_referred(key: str) -> bool:
    """Whether the value of this setting may come from an environment variable."""
    return key in _PLACES or may_change(key)
