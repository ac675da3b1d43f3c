"""Faults of intervals, tests and comparisons."""

from tests.mutations.mutation import Mutation

BOOTSTRAP = "tests/evaluate/test_bootstrap.py"
SEEDS = "tests/evaluate/test_seeds.py"
USABLE = "tests/evaluate/test_usable.py"
RECL = "tests/evaluate/test_recl.py"
POWER_LAW = "tests/evaluate/test_power_law.py"
PAIRS = "tests/report/test_pairs.py"
GAINS = "tests/report/test_gains.py"

FAULTS = (
    Mutation(
        "intervals of 90 %",
        "pipeline/evaluate/bootstrap.py",
        "TAIL = 0.025",
        "TAIL = 0.05",
        BOOTSTRAP,
    ),
    Mutation(
        "ends of the interval exchanged",
        "pipeline/evaluate/bootstrap.py",
        "ends = [ratio[:, 0] - high * error, ratio[:, 0] - low * error]",
        "ends = [ratio[:, 0] + low * error, ratio[:, 0] + high * error]",
        BOOTSTRAP,
    ),
    Mutation(
        "a mean of document means where tokens differ",
        "pipeline/evaluate/bootstrap.py",
        "    documents = len(tokens)\n    assert",
        "    documents = len(tokens)\n"
        "    sums, tokens = sums / tokens[:, None], np.ones(documents)\n    assert",
        BOOTSTRAP,
    ),
    Mutation(
        "documents of the two sides drawn apart",
        "pipeline/report/pairs.py",
        "    return of_a - of_b",
        "    return of_a - np.roll(of_b, 1)",
        PAIRS,
    ),
    Mutation(
        "Holm without its running maximum",
        "pipeline/evaluate/seeds.py",
        "np.maximum.accumulate(scaled)",
        "scaled",
        SEEDS,
    ),
    Mutation(
        "p of one side",
        "pipeline/evaluate/seeds.py",
        "2.0 * float(stdtr(",
        "1.0 * float(stdtr(",
        SEEDS,
    ),
    Mutation(
        "p corrected for all lengths at once",
        "pipeline/report/pairs.py",
        "        found += _corrected(_over_documents(pairs, values))\n    return found",
        "        found += _over_documents(pairs, values)\n    return _corrected(found)",
        PAIRS,
    ),
    Mutation(
        "a loss that comes back down is usable",
        "pipeline/evaluate/usable.py",
        "np.logical_and.accumulate(good[:, trained:], axis=1)",
        "good[:, trained:]",
        USABLE,
    ),
    Mutation(
        "RECL against a model's own baseline",
        "pipeline/evaluate/recl.py",
        "improved = np.minimum(baseline, own[long][targets]).mean()",
        "improved = own[long][targets].mean()",
        RECL,
    ),
    Mutation(
        "the power law fitted beyond the train length",
        "pipeline/evaluate/power_law.py",
        "sorted(c for c in losses if c <= train_length)",
        "sorted(losses)",
        POWER_LAW,
    ),
    Mutation(
        "context gain with the wrong sign",
        "pipeline/report/gains.py",
        "differences = [short[seed] - long[seed] for seed in shared]",
        "differences = [long[seed] - short[seed] for seed in shared]",
        GAINS,
    ),
)
