"""The code has no way to run what it reads: found in its syntax, so that no test can forget one."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.tree import parse, sources

# Modules that run what they read, or unpack what they are given.
MODULES = {
    "pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "runpy", "tarfile",
}  # fmt: skip
# Functions of the language that do.
BUILTINS = {"eval", "exec", "compile", "__import__"}
# Functions, by the end of their dotted name, that do or have a safe sibling.
CALLS = {
    "yaml.load", "yaml.load_all", "yaml.unsafe_load", "yaml.unsafe_load_all", "yaml.full_load",
    "os.system", "os.popen", "os.execv", "os.execvp", "os.spawnv", "shutil.unpack_archive",
    "torch.jit.load", "torch.hub.load", "torch.package.PackageImporter", "tempfile.mktemp",
    "pandas.read_pickle", "subprocess.getoutput", "OmegaConf.load",
}  # fmt: skip
# Methods that load what somebody else has written with pickle, or unpack it.
METHODS = {"load_checkpoint", "extractall", "extract", "load_from_checkpoint"}
# Keywords that a call must have, with their only value.
DEMANDED = {"torch.load": ("weights_only", True), "np.load": ("allow_pickle", False)}
FORBIDDEN = {("shell", True), ("trust_remote_code", True), ("allow_pickle", True)}
# A child process reads what its own parent has just sent it, and runs the module of the project
# that it names: no file, nothing from outside.
EXCEPTIONS = {("pipeline/bench/memory.py", "pickle"), ("pipeline/launch/begin.py", "runpy")}


def faults(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Every line that could run what it reads, with the name of what it uses."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found = [alias.name.partition(".")[0] for alias in node.names]
            yield from ((node.lineno, name) for name in found if name in MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module:
            if node.module.partition(".")[0] in MODULES:
                yield node.lineno, node.module.partition(".")[0]
            full = [f"{node.module}.{alias.name}" for alias in node.names]
            # a function taken out of its module would be called under a name unknown here
            yield from ((node.lineno, name) for name in full if name in {*CALLS, *DEMANDED})
        elif isinstance(node, ast.Call):
            yield from ((node.lineno, name) for name in _faults_of_call(node))


def _faults_of_call(call: ast.Call) -> Iterator[str]:
    name = ast.unparse(call.func).replace("numpy.", "np.")
    keywords = {
        k.arg: k.value.value for k in call.keywords if k.arg and isinstance(k.value, ast.Constant)
    }
    if name in BUILTINS or name in CALLS:
        yield name
    if isinstance(call.func, ast.Attribute) and call.func.attr in METHODS:
        yield call.func.attr
    if name in DEMANDED and keywords.get(DEMANDED[name][0]) is not DEMANDED[name][1]:
        yield name
    for keyword, value in FORBIDDEN:
        if keywords.get(keyword) is value:
            yield keyword


def named(path: Path) -> list[str]:
    """The faults of a file, each with its line."""
    return [
        f"{path}:{line}: {what}"
        for line, what in faults(parse(path))
        if (path.as_posix(), what) not in EXCEPTIONS
    ]


def test_nothing_in_the_code_runs_what_it_reads() -> None:
    files = sources("pipeline", "train.py")
    assert len(files) > 100
    assert [fault for path in files for fault in named(path)] == []


def test_the_exceptions_are_still_there() -> None:
    for path, what in EXCEPTIONS:
        assert what in {found for _, found in faults(parse(Path(path)))}, path


def test_the_loaders_that_are_used_are_seen() -> None:
    """Or a rule about them would hold of nothing."""
    nodes = [node for path in sources("pipeline") for node in ast.walk(parse(path))]
    used = [ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)]
    assert used.count("torch.load") >= 1 and used.count("np.load") >= 1
    assert "yaml.safe_load" in used and "subprocess.run" in used


BAD = [
    "import torch\ntorch.load(p)",
    "import torch\ntorch.load(p, weights_only=False)",
    "import torch\ntorch.load(p, weights_only=trusted)",
    "import numpy as np\nnp.load(p)",
    "import numpy\nnumpy.load(p)",
    "import numpy as np\nnp.load(p, allow_pickle=True)",
    "import numpy as np\nnp.save(p, a, allow_pickle=True)",
    "from torch import load\nload(p)",
    "import pickle",
    "from pickle import loads",
    "import dill as p",
    "eval(text)",
    "exec(text)",
    "compile(text, p, 'exec')",
    "__import__(name)",
    "import yaml\nyaml.load(text, yaml.Loader)",
    "import yaml\nyaml.unsafe_load(text)",
    "from yaml import unsafe_load",
    "import subprocess\nsubprocess.run(text, shell=True)",
    "import os\nos.system(text)",
    "engine.load_checkpoint(p)",
    "import tarfile",
    "zipfile.ZipFile(p).extractall(q)",
    "from omegaconf import OmegaConf\nOmegaConf.load(p)",
    "AutoModel.from_pretrained(p, trust_remote_code=True)",
]
GOOD = [
    "import torch\ntorch.load(p, map_location='cpu', weights_only=True)",
    "import numpy as np\nnp.load(p, allow_pickle=False)",
    "import numpy as np\nnp.memmap(p)",
    "import yaml\nyaml.safe_load(text)",
    "import json\njson.loads(text)",
    "decoder.eval()",
    "import subprocess\nsubprocess.run([a, b])",
    "re.compile(text)",
]


@pytest.mark.parametrize("text", BAD)
def test_a_line_that_would_run_what_it_reads_is_seen(text: str) -> None:
    assert list(faults(ast.parse(text)))


@pytest.mark.parametrize("text", GOOD)
def test_a_line_that_does_not_is_left_alone(text: str) -> None:
    assert not list(faults(ast.parse(text)))
