"""One-line faults that the tests must catch; each names the test that kills it.

A fault is one replacement in one file. `matrix` picks the cases of the two-rank matrix that are
run for it (all else would take too long).
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutation:
    """Replace `old`, which occurs once in `file`, by `new`; then `test` must fail."""

    name: str
    file: str
    old: str
    new: str
    test: str
    matrix: str = ""


MATRIX = "tests/distributed/test_matrix.py"
ORDER = "tests/distributed/test_order.py"
BATTERY = "tests/positions/test_battery.py"
PUBLISHED = "tests/positions/test_published.py"
WINDOWS = "tests/evaluate/test_windows.py"
SCORE = "tests/evaluate/test_score.py"
ATTENTION = "tests/model/test_attention.py"
DECODER = "tests/model/test_decoder.py"

MUTATIONS = (
    Mutation(
        "accumulation divided twice",
        "pipeline/training/strategy.py",
        "scale_wrt_gas=False",
        "scale_wrt_gas=True",
        MATRIX,
        "none-zero1-sp1-accumulate2",
    ),
    Mutation(
        "Lightning's division by the accumulation count not undone",
        "pipeline/training/module.py",
        "(self.mesh.world * accumulate)",
        "self.mesh.world",
        MATRIX,
        "none-zero2-sp2-accumulate2",
    ),
    Mutation(
        "loss divided by sequence_parallel",
        "pipeline/training/module.py",
        "(self.mesh.world * accumulate)",
        "(self.mesh.data_parallel * accumulate)",
        MATRIX,
        "none-zero1-sp2-accumulate1",
    ),
    Mutation(
        "mean of the rank's own tokens",
        "pipeline/training/module.py",
        'return nats / max(batch["step_tokens"], 1) *',
        "return nats / max(1, int((labels != IGNORED).sum())) / self.mesh.world *",
        MATRIX,
        "none-zero1-sp1-accumulate1",
    ),
    Mutation(
        "local head indices",
        "pipeline/parallel/ulysses.py",
        "return range(self.part * held, (self.part + 1) * held)",
        "return range(held)",
        MATRIX,
        "alibi-zero1-sp2-accumulate1",
    ),
    Mutation(
        "local positions at the input",
        "pipeline/model/decoder.py",
        "ids[:, exchange.tokens(ids.shape[1])]",
        "ids[:, : x.shape[1]]",
        MATRIX,
        "learned-zero3-sp2-accumulate1",
    ),
    Mutation(
        "no exchange",
        "pipeline/parallel/ulysses.py",
        "dist.all_to_all_single(y, x, group=group)",
        "y.copy_(x)",
        MATRIX,
        "rope-zero2-sp2-accumulate1",
    ),
    Mutation(
        "no gradient through the exchange",
        "pipeline/parallel/ulysses.py",
        "_Swap.apply(grad.contiguous(), ctx.group)\n        return swapped",
        "_Swap.apply(grad.contiguous(), ctx.group)\n        return grad",
        MATRIX,
        "rope-zero1-sp2-accumulate1",
    ),
    Mutation(
        "half of the encoding's gradient",
        "pipeline/positions/t5.py",
        "held = self.table[",
        "held = (0.5 * self.table + 0.5 * self.table.detach())[",
        BATTERY,
    ),
    Mutation(
        "every group reads the first share",
        "pipeline/data/module.py",
        "[part, self.group]",
        "[part, 0]",
        ORDER,
    ),
    Mutation(
        "tokens of this rank's share counted only",
        "pipeline/data/module.py",
        "self.sequences.target_count(int(i)) for i in indices",
        "self.sequences.target_count(int(i)) for i in share",
        ORDER,
    ),
    Mutation(
        "each rank reads whole sequences",
        "pipeline/data/module.py",
        "self.sequences.read(int(i), self.here.start, self.here.stop)",
        "[x[self.here] for x in self.sequences.read(int(i), 0, self.sequences.length)]",
        ORDER,
    ),
    Mutation(
        "labels not shifted",
        "pipeline/data/sequences.py",
        "return tokens[: stop - start], tokens[1:]",
        "return tokens[: stop - start], tokens[: stop - start]",
        "tests/data/test_sequences.py",
    ),
    Mutation(
        "a space invented at the start of a text",
        "pipeline/data/tokenizer.py",
        "add_dummy_prefix=False",
        "add_dummy_prefix=True",
        "tests/data/test_tokenizer.py",
    ),
    Mutation(
        "bytes outside the vocabulary lost",
        "pipeline/data/tokenizer.py",
        "byte_fallback=True",
        "byte_fallback=False",
        "tests/data/test_tokenizer.py",
    ),
    Mutation(
        "the tail of a document dropped",
        "pipeline/evaluate/windows.py",
        "while stop < end:",
        "while stop + stride <= end:",
        WINDOWS,
    ),
    Mutation(
        "context grows at the wrong end",
        "pipeline/evaluate/windows.py",
        "[Window(d, n - 1 - length, n - 1, targets) for d, n in enumerate(sizes)]",
        "[Window(d, 0, length, targets) for d, n in enumerate(sizes)]",
        WINDOWS,
    ),
    Mutation(
        "the window control sees one window more",
        "pipeline/evaluate/windows.py",
        "windows.append(Window(document, stop - length, stop, scored))",
        "windows.append(Window(document, stop - 2 * length, stop, scored))",
        WINDOWS,
    ),
    Mutation(
        "scored labels one token early",
        "pipeline/evaluate/score.py",
        "window.stop - window.scored + 1 : window.stop + 1\n            ]",
        "window.stop - window.scored : window.stop\n            ]",
        SCORE,
    ),
    Mutation(
        "a row's nats in another row's place",
        "pipeline/evaluate/score.py",
        "self._place(windows[i], row, int(starts[i]), nats, times)",
        "self._place(windows[i], values[0], int(starts[i]), nats, times)",
        SCORE,
    ),
    Mutation(
        "mean loss over positions beyond the table clamped",
        "pipeline/positions/learned.py",
        "return self.shape.train_length",
        "return None",
        BATTERY,
    ),
    Mutation(
        "rope angles in fp32",
        "pipeline/positions/rope.py",
        "device=q.device, dtype=torch.float64)",
        "device=q.device, dtype=torch.float32)",
        PUBLISHED,
    ),
    Mutation(
        "rope turns keys the other way",
        "pipeline/positions/rope.py",
        "_rotate(q, cos, sin), _rotate(k, cos, sin)",
        "_rotate(q, cos, sin), _rotate(k, cos, -sin)",
        BATTERY,
    ),
    Mutation(
        "alibi's first slope is one",
        "pipeline/positions/alibi.py",
        "2.0 ** (-8.0 * (h + 1) / power)",
        "2.0 ** (-8.0 * h / power)",
        PUBLISHED,
    ),
    Mutation(
        "t5 edges one too late",
        "pipeline/positions/t5.py",
        "right=True",
        "right=False",
        PUBLISHED,
    ),
    Mutation(
        "queries and keys not rotated",
        "pipeline/model/block.py",
        'q, k = position("rotate", q, k, ids, site)',
        'position("rotate", q, k, ids, site)',
        DECODER,
    ),
    Mutation(
        "embeddings not scaled",
        "pipeline/model/decoder.py",
        "x = self.width**0.5 * self.embedding(tokens)",
        "x = self.embedding(tokens)",
        DECODER,
    ),
    Mutation(
        "no residual around attention",
        "pipeline/model/block.py",
        "x = x + self.attention(",
        "x = self.attention(",
        DECODER,
    ),
    Mutation(
        "values rotated",
        "pipeline/model/block.py",
        "mixed = attention(q, k, v, position",
        'v = position("rotate", v, v, ids, site)[0]\n        mixed = attention(q, k, v, position',
        DECODER,
    ),
    Mutation(
        "the window control is the suffix window",
        "pipeline/evaluate/suite.py",
        "stride = max(1, targets // 16)",
        "stride = targets",
        SCORE,
    ),
    Mutation(
        "a gradient that is not finite goes unnoticed",
        "pipeline/training/module.py",
        "if not math.isfinite(norm):",
        "if norm != norm and norm == 0.0:",
        "tests/training/test_module.py",
    ),
    Mutation(
        "another configuration's checkpoint evaluated",
        "pipeline/launch/rank.py",
        'if manifest["config_hash"] != config_hash(',
        'if manifest["config_hash"] is config_hash(',
        "tests/launch/test_whole_path.py",
    ),
    Mutation(
        "a table on the wrong device",
        "pipeline/positions/alibi.py",
        "[every[h] for h in site.heads], device=ids_q.device)",
        "[every[h] for h in site.heads])",
        BATTERY,
    ),
    Mutation(
        "cosine and sine exchanged",
        "pipeline/positions/sinusoidal.py",
        "[angles.sin(), angles.cos()]",
        "[angles.cos(), angles.sin()]",
        BATTERY,
    ),
    Mutation(
        "tiles see the future",
        "pipeline/model/tile.py",
        "torch.full_like(table, -math.inf)",
        "torch.full_like(table, 0.0)",
        ATTENTION,
    ),
    Mutation(
        "softmax backward without its row term",
        "pipeline/model/tile.py",
        "d_tile.sub_(pull[:, here]).mul_(weight)",
        "d_tile.mul_(weight)",
        ATTENTION,
    ),
    Mutation(
        "online softmax forgets earlier tiles",
        "pipeline/model/tile.py",
        "mass.mul_(kept).add_(",
        "mass.mul_(1.0).add_(",
        ATTENTION,
    ),
    Mutation(
        "position weights drawn before the others",
        "pipeline/model/decoder.py",
        "model, self.width = config.model, config.model.width",
        "model, self.width = config.model, config.model.width\n"
        "        registry.build(config.position, shape_of(config))",
        DECODER,
    ),
    Mutation(
        "ignored labels cost something",
        "pipeline/model/loss.py",
        "ignore_index=IGNORED, reduction",
        "ignore_index=-1, reduction",
        DECODER,
    ),
    Mutation(
        "a damaged checkpoint is loaded",
        "pipeline/checkpoint/export.py",
        "if found != expected:",
        "if not expected:",
        "tests/checkpoint/test_export.py",
    ),
    Mutation(
        "a checkpoint is written in place",
        "pipeline/checkpoint/export.py",
        'partial = checkpoints / f"step-{step}.partial"',
        'partial = checkpoints / f"step-{step}"',
        "tests/checkpoint/test_export.py",
    ),
)
