"""The tiled loss and both its gradients against full logits in fp64, and what it never makes."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from pipeline.model import loss
from pipeline.model.loss import IGNORED, Head
from tests.bench.counting import Largest

VOCAB, WIDTH = 40, 12
CHOICES = torch.tensor([2, 3, 11, 12, 30])
WEIGHTS = torch.linspace(-1.0, 2.0, 30)
# what may come after the nats of a step: one gradient for all of them, or one for each
ENDS: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda nats: nats.sum(),
    "scaled sum": lambda nats: nats.view(1, -1).sum() / 7 * 2,
    "mean": lambda nats: nats.mean(),
    "weights": lambda nats: (nats * WEIGHTS[: len(nats)]).sum(),
    "square": lambda nats: nats.square().sum(),
    "one token": lambda nats: nats[-1] * 3.0,
}
UNIFORM = ("sum", "scaled sum")


def case(count: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Head, Tensor]:
    torch.manual_seed(count)
    hidden = torch.randn(count, WIDTH).to(dtype).requires_grad_()
    head = Head(torch.nn.Parameter(torch.randn(VOCAB, WIDTH).to(dtype)))
    labels = torch.randint(0, VOCAB, (count,))
    labels[1::3] = IGNORED
    return hidden, head, labels


def oracle(
    hidden: Tensor, weight: Tensor, labels: Tensor, end: Callable[[Tensor], Tensor]
) -> tuple[Tensor, ...]:
    """fp64 nats, and the gradients of `end` by hidden and weight."""
    h, w = (x.detach().double().requires_grad_() for x in (hidden, weight))
    nats = F.cross_entropy(h @ w.T, labels, ignore_index=IGNORED, reduction="none")
    return nats, *torch.autograd.grad(end(nats), (h, w))


def assert_close(fast: Tensor | None, slow: Tensor, limit: float = 1e-5) -> None:
    assert fast is not None
    size = max(float(slow.detach().abs().max()), 1.0)
    assert float((fast - slow).detach().abs().max()) <= limit * size


@pytest.fixture(autouse=True)
def tiles_of_eight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss, "TILE", 8)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("count", [1, 7, 8, 9, 16, 30])
def test_values_and_gradients_equal_full_logits(count: int, end: str) -> None:
    hidden, head, labels = case(count)
    nats = head(hidden, labels)
    ENDS[end](nats).backward()
    expected, d_hidden, d_weight = oracle(hidden, head.weight, labels, ENDS[end])
    assert_close(nats, expected)
    assert not nats[1::3].any()
    assert_close(hidden.grad, d_hidden)
    assert_close(head.weight.grad, d_weight)


@pytest.mark.parametrize("end", ENDS)
def test_bf16_gradients_are_bf16_and_right_to_its_rounding(end: str) -> None:
    hidden, head, labels = case(30, torch.bfloat16)
    nats = head(hidden, labels)
    ENDS[end](nats).backward()
    expected, d_hidden, d_weight = oracle(hidden, head.weight, labels, ENDS[end])
    assert nats.dtype == torch.float32
    assert hidden.grad is not None and hidden.grad.dtype == torch.bfloat16
    assert head.weight.grad is not None and head.weight.grad.dtype == torch.bfloat16
    assert_close(nats, expected, 2e-2)
    assert_close(hidden.grad, d_hidden, 2e-2)
    assert_close(head.weight.grad, d_weight, 2e-2)


def test_bf16_sums_weight_gradients_in_fp32(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand equal contributions: in bf16 the sum would stop growing at 256 times one."""
    monkeypatch.setattr(loss, "TILE", 1)
    hidden = torch.ones(1024, 2, dtype=torch.bfloat16, requires_grad=True)
    head = Head(torch.nn.Parameter(torch.zeros(2, 2, dtype=torch.bfloat16)))
    head(hidden, torch.zeros(1024, dtype=torch.int64)).sum().backward()
    assert head.weight.grad is not None
    assert head.weight.grad.tolist() == [[-512.0, -512.0], [512.0, 512.0]]


@pytest.mark.parametrize("end", ["sum", "weights"])
def test_labels_that_are_all_ignored_cost_nothing(end: str) -> None:
    hidden, head, labels = case(9)
    nats = head(hidden, labels.fill_(IGNORED))
    ENDS[end](nats).backward()
    for x in (nats, hidden.grad, head.weight.grad):
        assert x is not None and not x.any()


def test_no_tokens() -> None:
    hidden, head, labels = case(0)
    nats = head(hidden, labels)
    nats.sum().backward()
    assert nats.shape == (0,)
    assert head.weight.grad is not None and not head.weight.grad.any()


def test_very_unlikely_labels_are_finite() -> None:
    hidden, head, labels = case(9)
    with torch.no_grad():
        hidden.mul_(1000.0)
    nats = head(hidden, labels)
    nats.sum().backward()
    expected, d_hidden, _ = oracle(hidden, head.weight, labels, ENDS["sum"])
    assert float(nats.detach().max()) > 1000.0
    assert_close(nats, expected)
    assert_close(hidden.grad, d_hidden)


def test_a_label_outside_the_vocabulary_is_refused() -> None:
    hidden, head, labels = case(9)
    for wrong in (VOCAB, -1):
        labels[4] = wrong
        with pytest.raises((RuntimeError, IndexError), match="out of bounds"):
            head(hidden, labels)


def test_without_gradients_the_same_values() -> None:
    hidden, head, labels = case(30)
    with torch.no_grad():
        values = head(hidden, labels)
    assert_close(values, head(hidden, labels), 1e-6)
    assert not values[1::3].any()


@pytest.mark.parametrize("choices", [None, CHOICES], ids=["nats", "ranks"])
def test_without_gradients_only_labels_that_count_get_logits(choices: Tensor | None) -> None:
    hidden, head, labels = case(30)
    labels.fill_(IGNORED)[11] = 5
    shapes = set()

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            out = func(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor):
                shapes.add(out.shape)
            return out

    with torch.no_grad(), Watch():
        head(hidden, labels, choices)
    assert {shape[0] for shape in shapes if shape[1:] == (VOCAB,)} == {1, WIDTH}


@pytest.mark.parametrize("count", [1, 7, 8, 9, 16, 30])
def test_ranks_count_the_tokens_that_are_as_likely(count: int) -> None:
    hidden, head, labels = case(count)
    found = head(hidden, labels, CHOICES)
    assert found.dtype == torch.float32 and not found.requires_grad
    logits = (hidden @ head.weight.T).tolist()
    assert_close(found[:, 0], oracle(hidden, head.weight, labels, ENDS["sum"])[0])
    for row, label, (_, rank, among) in zip(logits, labels.tolist(), found.tolist(), strict=True):
        if label == IGNORED:
            assert (rank, among) == (0, 0)
            continue
        assert rank == 1 + sum(other > row[label] for other in row)
        others = [row[choice] for choice in CHOICES.tolist() if choice != label]
        itself = label in CHOICES
        assert among == itself + sum(other > row[label] for other in others)


def test_ties_and_what_is_no_number_count_against_the_label() -> None:
    """An argmax may take any of equal tokens: a label that shares the first place has not won."""
    logits = torch.tensor([[0.0] * 5, [3.0, 3.0, 1.0, 4.0, 0.0], [2.0, 1.0, 1.0, torch.nan, 0.0]])
    head = Head(torch.nn.Parameter(torch.eye(5)))
    found = head(logits, torch.tensor([0, 0, 0]), torch.tensor([0, 1, 2]))
    assert found[:, 1].tolist() == [5, 3, 5]
    assert found[:2, 2].tolist() == [3, 2]
    assert not found[2, 0].isfinite()


def test_ranks_are_made_in_tiles() -> None:
    torch.manual_seed(0)
    head = Head(torch.nn.Parameter(torch.randn(VOCAB, 2)))
    with Largest() as largest:
        head(torch.randn(70, 2), torch.arange(70) % VOCAB, CHOICES)
    assert largest.entries == 8 * VOCAB


def test_inside_a_checkpoint_and_twice_through_one_graph() -> None:
    hidden, head, labels = case(30)
    _, d_hidden, d_weight = oracle(hidden, head.weight, labels, ENDS["sum"])
    checkpoint(head, hidden, labels, use_reentrant=False).sum().backward()
    nats = head(hidden, labels).sum()
    nats.backward(retain_graph=True)
    nats.backward()
    assert_close(hidden.grad, 3 * d_hidden)
    assert_close(head.weight.grad, 3 * d_weight)


def test_a_frozen_weight_costs_no_gradient() -> None:
    hidden, head, labels = case(30)
    head.weight.requires_grad_(False)
    kept: list[Tensor] = []

    def pack(x: Tensor) -> Tensor:
        kept.append(x)
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        nats = head(hidden, labels)
    assert [x is head.weight for x in kept if x.shape == head.weight.shape] == [True]
    nats.sum().backward()
    assert_close(hidden.grad, oracle(hidden, head.weight, labels, ENDS["sum"])[1])


@pytest.mark.parametrize("end", ENDS)
def test_tiles_are_made_once_under_a_sum_and_are_the_largest_tensors(
    end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under a sum, backward makes no logits; nothing is ever of all tokens by vocabulary."""
    derivatives = 0
    differentiate = loss._differentiate

    def counted(logits: Tensor, labels: Tensor) -> Tensor:
        nonlocal derivatives
        derivatives += 1
        return differentiate(logits, labels)

    monkeypatch.setattr(loss, "_differentiate", counted)
    hidden, head, labels = case(30)
    with Largest() as largest:
        ENDS[end](head(hidden, labels)).backward()
    tiles = -(-30 // 8)
    assert derivatives == tiles * (1 if end in UNIFORM else 2)
    assert largest.entries == max(VOCAB * WIDTH, 8 * VOCAB)
