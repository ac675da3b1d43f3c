"""Faults of encodings, model and evaluation."""

from tests.mutations.mutation import Mutation

BATTERY = "tests/positions/test_battery.py"
PATHS = "tests/positions/test_paths.py"
PUBLISHED = "tests/positions/test_published.py"
WINDOWS = "tests/evaluate/test_windows.py"
SCORE = "tests/evaluate/test_score.py"
ATTENTION = "tests/model/test_attention.py"
DECODER = "tests/model/test_decoder.py"
LOSS = "tests/model/test_loss.py"
IDS = "tests/positions/test_position_ids.py"

FAULTS = (
    Mutation(
        "settings that decide numbers come from the environment",
        "pipeline/config/free.py",
        "return key in _PLACES or may_change(key)",
        "return True",
        "tests/config/test_redact.py",
    ),
    Mutation(
        "prepared text of another corpus taken by its name",
        "pipeline/data/prepare.py",
        "if key in manifest and manifest[key] != value:",
        "if key not in manifest:",
        "tests/data/test_prepared_folder.py",
    ),
    Mutation(
        "prepared text believed unseen",
        "pipeline/data/prepare.py",
        "        return open_prepared(folder, verify=True)",
        "        return open_prepared(folder)",
        "tests/data/test_prepared_folder.py",
    ),
    Mutation(
        "half of the encoding's gradient",
        "pipeline/positions/t5.py",
        "held = self.table[",
        "held = (0.5 * self.table + 0.5 * self.table.detach())[",
        PATHS,
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
        "self._place(windows[i], row, int(starts[i]), found, times)",
        "self._place(windows[i], values[0], int(starts[i]), found, times)",
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
        "device=device, dtype=torch.float64)",
        "device=device, dtype=torch.float32)",
        PUBLISHED,
    ),
    Mutation(
        "rope turns keys the other way",
        "pipeline/positions/rope.py",
        "_turned(q, turn), _turned(k, turn)",
        "_turned(q, turn), _turned(k, turn.conj())",
        PATHS,
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
        "pipeline/positions/base.py",
        "return (self.rotate(q, k, ids, site),)",
        "return ((q, k),)",
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
        'position("attend", attend, q, k, v, ids',
        'position("attend", attend, q, k, position("rotate", v, v, ids[:, here], site)[0], ids',
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
        "pipeline/model/distance.py",
        "torch.full_like(table, -math.inf)",
        "torch.full_like(table, 0.0)",
        ATTENTION,
    ),
    Mutation(
        "softmax backward without its row term",
        "pipeline/model/tile.py",
        "d_score.sub_(pull[:, here]).mul_(weight)",
        "d_score.mul_(weight)",
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
        "counted = labels != IGNORED",
        "counted = labels != -1",
        LOSS,
    ),
    Mutation(
        "drawn ids read as consecutive",
        "pipeline/positions/base.py",
        "as_table = self.facts.shift_invariant and site.consecutive",
        "as_table = self.facts.shift_invariant",
        IDS,
    ),
    Mutation(
        "the first sequence's ids for all",
        "pipeline/positions/base.py",
        "if len(ids) > 1 and self._asks(site, mask):",
        "if len(ids) > 2 and self._asks(site, mask):",
        IDS,
    ),
    Mutation(
        "a segment ends before its separator",
        "pipeline/positions/ids/segments.py",
        "return np.cumsum(ends) - ends",
        "return np.cumsum(ends)",
        IDS,
    ),
    Mutation(
        "the second chunk may start at once",
        "pipeline/positions/ids/pose.py",
        "draw.integers(1, max(2, (length + 1) // 2 + 1))",
        "draw.integers(0, max(2, (length + 1) // 2 + 1))",
        IDS,
    ),
)
