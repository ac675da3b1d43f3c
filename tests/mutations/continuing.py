"""Faults of runs that continue others."""

from tests.mutations.mutation import Mutation

CONFIG = "tests/config/test_continued.py"
LAUNCH = "tests/launch/test_continued.py"
TRAINING = "tests/training/test_continued.py"
LINEAGE = "tests/report/test_lineage.py"

FAULTS = (
    Mutation(
        "a continued encoding is scaled to its new length",
        "pipeline/model/decoder.py",
        "model.heads, config.scale_length, config.data.vocab)",
        "model.heads, config.train_length, config.data.vocab)",
        LAUNCH,
    ),
    Mutation(
        "modifiers of a continued run are scaled to its new length",
        "pipeline/model/decoder.py",
        "Block(model, layer, config.scale_length)",
        "Block(model, layer, config.train_length)",
        LAUNCH,
    ),
    Mutation(
        "position ids of a continued run know its first length only",
        "pipeline/positions/registry.py",
        "shape = replace(position.shape, train_length=train_length)",
        "shape = position.shape",
        LAUNCH,
    ),
    Mutation(
        "training goes on without the extension",
        "pipeline/training/start.py",
        "        extend_decoder(decoder, config)",
        "        extend_decoder(decoder, Config())",
        TRAINING,
    ),
    Mutation(
        "training starts from fresh weights",
        "pipeline/training/start.py",
        "        load_weights(decoder, start.weights)",
        "        load_weights(decoder, dict(decoder.named_parameters()))",
        TRAINING,
    ),
    Mutation(
        "a continued run reads the text of its origin again",
        "pipeline/data/module.py",
        "counted = self.done_before + step",
        "counted = step",
        TRAINING,
    ),
    Mutation(
        "text that the origin was trained on may be tested",
        "pipeline/config/continued.py",
        '"data.workers", "data.mix."',
        '"data.workers", "data.mix.", "data.test_fraction"',
        CONFIG,
    ),
    Mutation(
        "rows of a continued run lie among those of extensions",
        "pipeline/record/folder.py",
        "if extension == load(self.config, [])[0].extension:",
        "if extension == Config().extension:",
        LAUNCH,
    ),
    Mutation(
        "the lineage forgets the runs before the last",
        "pipeline/launch/continued.py",
        '[*self.summary.get("lineage", []), own]',
        "[own]",
        LAUNCH,
    ),
    Mutation(
        "every seed of an origin is a treatment of its own",
        "pipeline/report/lineage.py",
        '(?=-|$)", "-s{seed}"',
        '(?=x)", "-s{seed}"',
        LINEAGE,
    ),
)
