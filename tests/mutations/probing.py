"""Faults of the probes."""

from tests.mutations.mutation import Mutation

WEIGHTS = "tests/evaluate/test_probes_weights.py"
ATTENTION = "tests/evaluate/test_probes_attention.py"
DECODABILITY = "tests/evaluate/test_probes_decodability.py"
PROBES = "tests/evaluate/test_probes.py"
REPORT = "tests/report/test_probes.py"

FAULTS = (
    Mutation(
        "probed rows without their masks",
        "pipeline/evaluate/probes/weights.py",
        "return tiles(tile, tiles.allowed(tile)).squeeze(1)",
        "return tiles(tile).squeeze(1)",
        WEIGHTS,
    ),
    Mutation(
        "probed rows of cope without positions",
        "pipeline/model/contextual.py",
        "return product.add_(Count.of(p).read(self._levels(rows)))",
        "return product",
        WEIGHTS,
    ),
    Mutation(
        "layers without an encoding not looked at",
        "pipeline/evaluate/probes/weights.py",
        "used = dict.fromkeys(map(decoder.position_of, range(len(decoder.blocks))))",
        "used = [decoder.position]",
        WEIGHTS,
    ),
    Mutation(
        "the distance of the train length taken for a trained one",
        "pipeline/evaluate/probes/attention.py",
        "weights * (distance >= self.train_length)",
        "weights * (distance > self.train_length)",
        ATTENTION,
    ),
    Mutation(
        "an edge in the bin before it",
        "pipeline/evaluate/probes/attention.py",
        "edges, right=True) - 1",
        "edges, right=False) - 1",
        ATTENTION,
    ),
    Mutation(
        "resolution divided by one distance too many",
        "pipeline/evaluate/probes/resolution.py",
        "/ here.sum(-1).square()",
        "/ size.sum(-1).square()",
        ATTENTION,
    ),
    Mutation(
        "positions tested on the documents they were fitted on",
        "pipeline/evaluate/probes/decodability.py",
        'for p in ("fit", "choose", "test"))',
        'for p in ("fit", "choose", "fit"))',
        DECODABILITY,
    ),
    Mutation(
        "a control that is not shuffled",
        "pipeline/evaluate/probes/decodability.py",
        "torch.cat([both, both[order]], -1)",
        "torch.cat([both, both], -1)",
        DECODABILITY,
    ),
    Mutation(
        "probes shown the last target",
        "pipeline/evaluate/probes/probe.py",
        "[None, window.start : window.stop]",
        "[None, window.start + 1 : window.stop + 1]",
        PROBES,
    ),
    Mutation(
        "the smaller control shown",
        "pipeline/report/probes.py",
        "max(c for c in controls if c is not None)",
        "min(c for c in controls if c is not None)",
        REPORT,
    ),
)
