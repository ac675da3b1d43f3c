"""Faults of encodings beyond the first ones: gates, masks, contexts, extensions, modifiers, ids."""

from tests.mutations.mutation import Mutation

TERMS = "tests/model/test_tile_terms.py"
CONTEXT = "tests/model/test_contextual.py"
GATES = "tests/positions/test_gates.py"
CONTENT = "tests/positions/test_content.py"
ROTARY = "tests/positions/test_rotary.py"
RAMPS = "tests/positions/test_ramps.py"
RESCALINGS = "tests/positions/test_rescalings.py"
PIECEWISE = "tests/positions/test_piecewise.py"
MASKS = "tests/positions/test_masks.py"
MODIFIERS = "tests/model/test_modifiers.py"
EXTENDED = "tests/evaluate/test_extended.py"

FAULTS = (
    Mutation(
        "half the gradient of a table read by keys",
        "pipeline/model/tile_scores.py",
        "self.crossed.collect(across, keys, tile)",
        "self.crossed.collect(across, 0.5 * keys, tile)",
        TERMS,
    ),
    Mutation(
        "gates get their gradient with the wrong sign",
        "pipeline/model/tile_scores.py",
        "self.d_decay[:, there] -= d_score.sum(1)",
        "self.d_decay[:, there] += d_score.sum(1)",
        TERMS,
    ),
    Mutation(
        "sums of gates rounded to fp32",
        "pipeline/model/tile_scores.py",
        "return decayed.add_(low_q.unsqueeze(2)).sub_(low_k.unsqueeze(1))",
        "return decayed",
        TERMS,
    ),
    Mutation(
        "gates of another stripe get the gradient in a ring",
        "pipeline/parallel/ring.py",
        "total[..., meeting.keys] += part",
        "total[..., : meeting.size] += part",
        TERMS,
    ),
    Mutation(
        "a function of scores passes its gradient on unchanged",
        "pipeline/model/tile_scores.py",
        "d_score = self._pull_transform(d_score, tile)",
        "self._pull_transform(d_score, tile)",
        TERMS,
    ),
    Mutation(
        "a context's gates forget the tiles to their left",
        "pipeline/model/contextual.py",
        "carried = d_gates[..., -1:].clone()",
        "carried = carried",
        CONTEXT,
    ),
    Mutation(
        "gates summed in fp32",
        "pipeline/positions/fox.py",
        "F.logsigmoid(logits.double()).cumsum(-1)",
        "F.logsigmoid(logits.float()).cumsum(-1).double()",
        GATES,
    ),
    Mutation(
        "keys read the printed table forwards",
        "pipeline/positions/deberta.py",
        "self.table[: self.span + 1].flip(0)",
        "self.table[: self.span + 1]",
        CONTENT,
    ),
    Mutation(
        "the centre of xPos is the rank's own",
        "pipeline/positions/xpos.py",
        "- site.length // 2)",
        "- ids.shape[-1] // 2)",
        ROTARY,
    ),
    Mutation(
        "YaRN's ramp keeps the slow pairs",
        "pipeline/positions/extensions/yarn.py",
        "torch.lerp(speeds, speeds / self.s, divided)",
        "torch.lerp(speeds / self.s, speeds, divided)",
        RAMPS,
    ),
    Mutation(
        "NTK's exponent over d, not d - 2",
        "pipeline/positions/extensions/ntk.py",
        "-steps / (len(speeds) - 1)",
        "-steps / len(speeds)",
        RESCALINGS,
    ),
    Mutation(
        "dual chunks stop at c as in their code",
        "pipeline/positions/extensions/dual_chunk.py",
        "inside, last = ids % self.chunk, self.distances - 1",
        "inside, last = ids % self.chunk, self.distances",
        PIECEWISE,
    ),
    Mutation(
        "grouped distances start a group late",
        "pipeline/positions/extensions/self_extend.py",
        "self.neighbours - self.neighbours // self.group",
        "self.neighbours",
        PIECEWISE,
    ),
    Mutation(
        "log-n grows with what a window hides",
        "pipeline/positions/extensions/log_n.py",
        "clamp(max=found.window or math.inf)",
        "clamp(max=math.inf)",
        PIECEWISE,
    ),
    Mutation(
        "every rank shifts half of its own heads",
        "pipeline/positions/masks.py",
        "shift = (own >= all_heads // 2)",
        "shift = (own >= (heads.start + heads.stop) // 2)",
        MASKS,
    ),
    Mutation(
        "log-n in training grows with what a window hides",
        "pipeline/model/modifiers.py",
        "clamp(max=self.window or site.length)",
        "clamp(max=site.length)",
        MODIFIERS,
    ),
    Mutation(
        "groups of training are tested too",
        "pipeline/model/modifiers.py",
        'model.attention_mask == "shifted_groups" and not training',
        'model.attention_mask == "shifted_groups" and training is None',
        MODIFIERS,
    ),
    Mutation(
        "layers without an encoding are never extended",
        "pipeline/evaluate/extended.py",
        "(some_bare and registry.extension_fits(kind, decoder.bare))",
        "(some_bare and decoder.dropped)",
        EXTENDED,
    ),
)
