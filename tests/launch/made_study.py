"""A study on a small made-up corpus, and the commands that a user would give on it."""

import os
import subprocess
import sys
from pathlib import Path

from tests.distributed.ranks import ROOT


def command(*arguments: object, expect: int = 0) -> subprocess.CompletedProcess[str]:
    """`python ARGUMENTS` in the top folder, which must end with the expected exit code."""
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "WANDB_MODE": "offline"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == expect, done.stdout + done.stderr
    return done


def write_study(folder: Path, positions: str) -> Path:
    """The file of a study that trains these encodings for six steps, with its corpus beside it."""
    corpus = folder / "corpus"
    corpus.mkdir()
    for n in range(40):
        words = [f"word{(n * k * k) % 97} comes after {k % 13}" for k in range(150)]
        (corpus / f"{n:02}.txt").write_text("\n".join(words))
    (folder / "study.yaml").write_text(
        f"""
experiment: path
runs: {folder}/runs
train_length: 33
eval_lengths: [16, 33, 66, 132]
model: {{width: 32, layers: 2, heads: 4, mlp_width: 64}}
data:
  source: {corpus}
  prepared: {folder}/prepared
  vocab: 300
  tokenizer_bytes: 100000
  validation_fraction: 0.2
  test_fraction: 0.2
optimizer: {{warmup_steps: 2}}
trainer: {{max_steps: 6, batch_sequences: 8, log_every: 2, evaluate_every: 3}}
evaluate: {{suffix_tokens: 8, documents: 3, short_documents: 2}}
wandb: {{mode: "off"}}
sweep: {{position: [{positions}]}}
"""
    )
    return folder / "study.yaml"
