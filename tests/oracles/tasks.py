"""The answers of the tasks, worked out by slow loops from nothing but the bytes of the prompt."""

import re
from collections import Counter
from collections.abc import Callable

FIRST_MARKER = 0xF5
ASK = b"\xc0"


def answer_of(name: str, prompt: bytes) -> bytes:
    """The answer to a prompt of a task."""
    marker = FIRST_MARKER + list(SOLVERS).index(name)
    head, mark, rest = prompt.partition(bytes([marker]))
    assert mark and set(head) <= {0xC1}, prompt
    return SOLVERS[name](rest)


def _given(rest: bytes) -> bytes:
    given, ask, none = rest.partition(ASK)
    assert ask and not none, rest
    return given


def _copy(rest: bytes) -> bytes:
    return _given(rest)


def _reverse(rest: bytes) -> bytes:
    return _given(rest)[::-1]


def _sort(rest: bytes) -> bytes:
    return bytes(sorted(_given(rest)))


def _addition(rest: bytes) -> bytes:
    one, two = _given(rest).split(b"+")
    carry, digits = 0, []
    for i in range(max(len(one), len(two)) + 1):
        total = carry + sum(int(n[i : i + 1]) for n in (one, two) if i < len(n))
        carry = total // 10
        digits.append(str(total % 10))
    return "".join(digits).encode()


def _majority(rest: bytes) -> bytes:
    (first, most), *others = Counter(_given(rest)).most_common()
    assert all(count < most for _, count in others), "a tie"
    return bytes([first])


def _parity(rest: bytes) -> bytes:
    return str(_given(rest).count(b"1") % 2).encode()


def _recall(rest: bytes) -> bytes:
    pairs, _, key = rest.partition(ASK)
    found = [pairs[i + 2 : i + 4] for i in range(0, len(pairs), 4) if pairs[i : i + 2] == key]
    assert len(found) == 1 and pairs.count(key) == 1, (key, pairs)
    return found[0]


def _passkey(rest: bytes) -> bytes:
    assert rest.endswith(b" What is the pass key? The pass key is ")
    (only,) = re.findall(rb" The pass key is (\d{5})\.", rest)
    return bytes(only)


def _key(rest: bytes) -> bytes:
    question = rb" What is the key (..)\? The key (..) is $"
    found = re.search(question, rest)
    assert found and found[1] == found[2], rest
    return bytes(found[1])


def _multi_key(rest: bytes) -> bytes:
    pairs = re.findall(rb" The key (..) is (\d{5})\.", rest)
    assert len(pairs) == len(dict(pairs)) == 4
    return bytes(dict(pairs)[_key(rest)])


def _multi_value(rest: bytes) -> bytes:
    pairs = re.findall(rb" The key (..) is (\d{5})\.", rest)
    assert len(pairs) == 3 and {key for key, _ in pairs} == {_key(rest)}
    return b"".join(number for _, number in pairs)


def _variable_tracking(rest: bytes) -> bytes:
    text, _, value = rest.partition(ASK)
    assert len(value) == 5
    statements = re.findall(rb"([A-Za-z])=(\d{5}|[A-Za-z]);", text)
    assert len(statements) == len(dict(statements)) == 10
    chain = b""
    for name, what in statements:
        if what == value or what in chain:
            chain += name
    return chain


SOLVERS: dict[str, Callable[[bytes], bytes]] = {
    "copy": _copy,
    "reverse": _reverse,
    "addition": _addition,
    "sort": _sort,
    "majority": _majority,
    "parity": _parity,
    "recall": _recall,
    "passkey": _passkey,
    "multi_key": _multi_key,
    "multi_value": _multi_value,
    "variable_tracking": _variable_tracking,
}
