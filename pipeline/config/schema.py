"""Every setting of a run: its name, type, default and what it may hold.

``configs/base.yaml`` lists the same keys with the same defaults, units and one comment line each; a
test keeps the two equal. Checks that involve more than one setting are in ``validate.py``.
"""

from dataclasses import dataclass, field
from typing import Any

NAME = r"[a-z0-9][a-z0-9_.-]{0,63}"
_NAME_WORDS = (
    "1 to 64 characters out of a-z, 0-9, '_', '.' and '-', the first one a letter or a digit"
)
_PATH = r"[^\x00-\x1f\x7f\ud800-\udfff]{1,4096}"
_PATH_WORDS = "a path: 1 to 4096 characters, no control characters"
# Groups whose files hold the settings of their own: free keys, beside the `name` of the file.
NAMED_GROUPS = ("position", "position_ids", "extension")
PROTOCOLS = ("sliding", "non-overlapping")
ATTENTION_PATHS = ("auto", "sdpa", "fold", "far_near", "contextual", "tile", "flex")
_LABEL = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
_LABEL_WORDS = (
    "1 to 128 characters out of A-Z, a-z, 0-9, '_', '.' and '-', the first one not '.' or '-'"
)


@dataclass(frozen=True)
class Allowed:
    """What one setting may hold: inclusive bounds, exclusive bounds, choices or a pattern.

    For a list these hold of each item; it has at least one, unless `empty`.
    """

    low: float | None = None
    high: float | None = None
    above: float | None = None
    below: float | None = None
    choices: tuple[str | int, ...] = ()
    pattern: str = ""
    words: str = ""
    empty: bool = False


def _setting(default: Any, **allowed: Any) -> Any:
    return field(default=default, metadata={"allowed": Allowed(**allowed)})


@dataclass
class ModelConfig:
    """The decoder; everything but the position encoding."""

    width: int = _setting(128, low=2, high=2**16)
    layers: int = _setting(4, low=1, high=1024)
    heads: int = _setting(4, low=1, high=1024)
    mlp_width: int = _setting(384, low=1, high=2**18)
    tied_embeddings: bool = _setting(True)
    attention_window: int | None = _setting(None, low=1, high=2**40)
    attention_mask: str = _setting("none", choices=("none", "blockwise", "shifted_groups"))
    mask_tokens: int | None = _setting(None, low=1, high=2**40)
    score_scale: str = _setting("none", choices=("none", "log_n", "ssmax"))
    qk_norm: str = _setting("none", choices=("none", "key", "cosine"))
    qk_bias: bool = _setting(False)
    no_position_every: int | None = _setting(None, low=2, high=1024)
    drop_position_after: int | None = _setting(None, low=1, high=10**9)
    attention_path: str = _setting("auto", choices=ATTENTION_PATHS)
    activation_checkpointing: bool = _setting(False)
    tiled_mlp: bool = _setting(False)

    @property
    def head_width(self) -> int:
        """Width of one head."""
        return self.width // self.heads


def _share() -> Any:
    return _setting(0.0, low=0.0, high=1.0)


@dataclass
class MixConfig:
    """The share of the training sequences that are of each task, instead of text."""

    copy: float = _share()
    reverse: float = _share()
    addition: float = _share()
    sort: float = _share()
    majority: float = _share()
    parity: float = _share()
    recall: float = _share()
    passkey: float = _share()
    multi_key: float = _share()
    multi_value: float = _share()
    variable_tracking: float = _share()


@dataclass
class DataConfig:
    """The corpus, its tokenizer and its splits."""

    source: str = _setting("stdlib", pattern=_PATH, words=f"'stdlib' or {_PATH_WORDS}")
    text_key: str = _setting("text", pattern=r"[^\x00-\x1f\x7f]{1,256}", words="a field name")
    prepared: str = _setting("data/prepared", pattern=_PATH, words=_PATH_WORDS)
    vocab: int = _setting(2048, low=260, high=2**20)
    tokenizer_bytes: int = _setting(4_000_000, low=10_000, high=2**33)
    validation_fraction: float = _setting(0.05, low=0.0, below=1.0)
    test_fraction: float = _setting(0.05, low=0.0, below=1.0)
    workers: int = _setting(0, low=0, high=256)
    mix: MixConfig = field(default_factory=MixConfig)


@dataclass
class OptimizerConfig:
    """AdamW and its learning rate: linear warm-up, then cosine decay."""

    learning_rate: float = _setting(1e-3, above=0.0, high=10.0)
    min_learning_rate: float = _setting(1e-4, low=0.0, high=10.0)
    weight_decay: float = _setting(0.1, low=0.0, high=10.0)
    beta1: float = _setting(0.9, low=0.0, below=1.0)
    beta2: float = _setting(0.95, low=0.0, below=1.0)
    epsilon: float = _setting(1e-8, above=0.0, high=1.0)
    warmup_steps: int = _setting(20, low=0, high=10**9)
    gradient_clip: float = _setting(1.0, low=0.0, high=1e6)


@dataclass
class TrainerConfig:
    """Length of training, ranks and how they share the work."""

    max_steps: int = _setting(300, low=1, high=10**9)
    batch_sequences: int = _setting(32, low=1, high=2**20)
    accumulate: int = _setting(1, low=1, high=2**20)
    processes: int = _setting(2, low=1, high=256)
    nodes: int = _setting(1, low=1, high=2**16)
    sequence_parallel: int = _setting(2, low=1, high=2**16)
    ring: int = _setting(1, low=1, high=2**16)
    zero_stage: int = _setting(1, choices=(1, 2, 3))
    accelerator: str = _setting("auto", choices=("auto", "cpu", "cuda"))
    precision: str = _setting("fp32", choices=("fp32", "bf16"))
    threads: int | None = _setting(None, low=1, high=1024)
    log_every: int = _setting(10, low=1, high=10**9)
    evaluate_every: int = _setting(100, low=0, high=10**9)
    hang_timeout: float = _setting(80.0, low=0.0, high=86400.0)
    save_every: int = _setting(100, low=0, high=10**9)
    keep: int = _setting(2, low=1, high=1000)
    keep_best: bool = _setting(False)

    @property
    def world(self) -> int:
        """Ranks in all."""
        return self.processes * self.nodes

    @property
    def data_parallel(self) -> int:
        """Sequence groups that train on different sequences."""
        return self.world // self.sequence_parallel


@dataclass
class EvaluateConfig:
    """What is scored, and on how much text."""

    split: str = _setting("test", choices=("validation", "test"))
    suffix_tokens: int = _setting(64, low=1, high=2**26)
    documents: int = _setting(32, low=1, high=2**20)
    sliding_documents: int | None = _setting(None, low=1, high=2**20)
    protocols: list[str] = field(
        default_factory=lambda: list(PROTOCOLS),
        metadata={"allowed": Allowed(choices=PROTOCOLS, empty=True)},
    )
    stride_fraction: float = _setting(0.25, above=0.0, high=1.0)
    batch_tokens: int = _setting(16384, low=1, high=2**30)
    short_documents: int = _setting(8, low=1, high=2**20)
    tasks: list[str] = field(
        default_factory=list,
        metadata={"allowed": Allowed(pattern=NAME, words="the name of a task", empty=True)},
    )
    task_examples: int = _setting(32, low=1, high=2**20)
    needle_depths: list[float] = field(
        default_factory=lambda: [0.0, 0.25, 0.5, 0.75, 1.0],
        metadata={"allowed": Allowed(low=0.0, high=1.0)},
    )


@dataclass
class WandbConfig:
    """The mirror of the records in Weights & Biases."""

    mode: str = _setting("auto", choices=("auto", "online", "offline", "off"))
    project: str = _setting("farsight", pattern=_LABEL, words=_LABEL_WORDS)
    entity: str | None = _setting(None, pattern=_LABEL, words=_LABEL_WORDS)
    init_timeout: float = _setting(20.0, above=0.0, high=3600.0)
    finish_timeout: float = _setting(20.0, above=0.0, high=3600.0)


@dataclass
class Config:
    """One run: one configuration, one position encoding, one seed.

    Each of the ``NAMED_GROUPS`` always holds ``name``; its other keys are the settings of what is
    named. ``extension`` is what a test does to a trained encoding, or, with ``init_from``, what the
    run trains its weights on under; "none" in all other training.
    ``sweep`` is empty in a resolved run. ``unresolved`` is no setting and no field: it maps the
    dotted keys whose value came from ``${oc.env:...}`` to that text, which is saved in its place.
    A copy by ``dataclasses.replace`` starts without it.
    """

    experiment: str = _setting("default", pattern=NAME, words=_NAME_WORDS)
    seed: int = _setting(0, low=0, high=2**32 - 1)
    runs: str = _setting("runs", pattern=_PATH, words=_PATH_WORDS)
    init_from: str | None = _setting(None, pattern=_PATH, words=_PATH_WORDS)
    train_length: int = _setting(128, low=2, high=2**26)
    encoding_length: int | None = _setting(None, low=2, high=2**26)
    eval_lengths: list[int] = field(
        default_factory=lambda: [64, 128, 256, 512, 1024, 2048],
        metadata={"allowed": Allowed(low=1, high=2**26)},
    )
    position: dict[str, Any] = field(
        default_factory=lambda: {"name": "rope", "base": 10000.0, "layout": "interleaved"}
    )
    position_ids: dict[str, Any] = field(default_factory=lambda: {"name": "consecutive"})
    extension: dict[str, Any] = field(default_factory=lambda: {"name": "none"})
    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    evaluate: EvaluateConfig = field(default_factory=EvaluateConfig)
    wandb: WandbConfig = field(default_factory=WandbConfig)
    sweep: dict[str, list[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.unresolved: dict[str, str] = {}

    @property
    def scale_length(self) -> int:
        """Tokens that the encoding, its extension and what in ``model`` depends on a length are
        scaled to: those of a training sequence of the run that made the weights at first."""
        return self.encoding_length or self.train_length
