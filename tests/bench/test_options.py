"""What a bench is asked for: refused with the reason, or laid out as subjects."""

from pathlib import Path
from typing import Any

import pytest

from pipeline.bench import rivals
from pipeline.bench.options import Options, read_options
from pipeline.errors import ConfigError

PLAIN: dict[str, Any] = {
    "positions": "rope,alibi", "lengths": "64,32", "measure": "attention,step", "against": "",
    "repeats": 1, "out": None,
}  # fmt: skip


def _read(*overrides: str, **options: Any) -> Options:
    return read_options(overrides, **{**PLAIN, **options})


@pytest.mark.parametrize(
    ("overrides", "options", "message"),
    [
        ([], {"positions": "rope,rope"}, "--positions='rope,rope'"),
        ([], {"positions": "rope,rop"}, "`position` = 'rop' is not known"),
        ([], {"lengths": "64,x"}, "--lengths='64,x' is not allowed: it takes integers"),
        ([], {"lengths": "1"}, "--lengths='1'"),
        ([], {"measure": "steps"}, "--measure='steps' .* attention, step"),
        ([], {"against": "nanogpt"}, "--against='nanogpt' .* hf, litgpt, x-transformers"),
        ([], {"repeats": 0}, "--repeats=0 is not allowed: it takes 1 or more"),
        (["position=t5"], {}, "name encodings with --positions"),
        (["trainer.max_steps=5"], {}, "`trainer.max_steps` has no effect on a bench"),
        (["models=tiny"], {}, "has no effect"),
        (["model.width=37"], {}, "`model.width` = 37"),
        ([], {"against": "hf", "measure": "attention"}, "add step to --measure"),
        ([], {"against": "hf", "positions": "alibi"}, "hf: it is measured under rope"),
        (
            ["model.activation_checkpointing=true"],
            {"against": "hf"},
            "`model.activation_checkpointing` = True is not allowed here: the rivals of --against",
        ),
        (["model.attention_window=16"], {"against": "hf"}, "`model.attention_window` = 16"),
        (["model.tiled_mlp=true"], {"against": "hf"}, "`model.tiled_mlp` = True"),
        (["model.qk_norm=key"], {"against": "hf"}, "`model.qk_norm` = key"),
        (["model.qk_bias=true"], {"measure": "step", "against": "hf"}, "`model.qk_bias` = True"),
        (["model.qk_bias=true"], {}, "`model.qk_bias` = True is not allowed here: attention is"),
        (["optimizer.gradient_clip=5"], {}, "`optimizer.gradient_clip` has no effect on a bench"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    overrides: list[str], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        _read(*overrides, **options)


def test_a_rival_that_is_not_installed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rivals, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"litgpt: not installed .*pip install -e '\.\[bench\]'"):
        _read(against="litgpt")


def test_a_folder_with_a_bench_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bench.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"already holds a bench.json"):
        _read(out=tmp_path)


def test_every_subject_has_its_yardstick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rivals, "find_spec", lambda name: True)
    options = _read(against="hf,x-transformers")
    assert options.lengths == [32, 64]
    found = [(s.measure, s.name, s.yardstick) for s in options.subjects(64)]
    assert found == [
        ("attention", "sdpa", "sdpa"),
        ("attention", "rope", "sdpa"),
        ("attention", "alibi", "sdpa"),
        ("step", "rope", "rope"),
        ("step", "alibi", "rope"),
        ("step", "hf rope", "rope"),
        ("step", "x-transformers rope", "rope"),
        ("step", "x-transformers alibi", "alibi"),
    ]


def test_a_learned_table_reaches_the_longest_length() -> None:
    options = _read(positions="learned", lengths="32,500")
    assert options.config.train_length == 500


def test_the_plain_folder_is_below_runs() -> None:
    assert _read("runs=elsewhere").out.parent == Path("elsewhere/bench")
