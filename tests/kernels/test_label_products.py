from __future__ import annotations

from collections.abc import Iterator
from threading import Event, Thread

import pytest
import torch

from adjudge.kernels import label_products as module
from adjudge.kernels import linear
from adjudge.kernels.label_products import label_products, matmuls_are_invariant
from tests.kernels.restricted_cases import assert_invariant, problem


@pytest.fixture(params=["as probed", "summed"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the probe chooses on this machine, and the way without a matmul."""
    if request.param == "summed":
        monkeypatch.setattr(module, "matmuls_are_invariant", lambda width, threads: False)


@pytest.mark.parametrize("width", [17, 512, 576, 1040])
def test_a_set_is_the_same_bits_shared_or_given_row_by_row_among_few_or_many(width: int, way: None) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(128, width, generator=generator)
    weight = torch.randn(4000, width, generator=generator)
    tokens = torch.randperm(4000, generator=generator)[:20]
    shared = label_products(x, weight, tokens[None])
    assert torch.equal(label_products(x, weight, tokens.expand(128, -1)), shared)
    many = torch.randint(4000, (128, 20), generator=generator)  # more different tokens than are gathered at once
    many[::2] = tokens
    assert torch.equal(label_products(x, weight, many)[::2], shared[::2])
    # against float64, no worse than twice torch's own
    exact, plain = x.double() @ weight[tokens].double().T, x @ weight[tokens].T
    assert (shared - exact).abs().max() <= 2 * (plain - exact).abs().max() + torch.finfo(torch.float32).eps


@pytest.mark.parametrize("features", ["values", "csr groups"])
def test_either_way_a_row_is_the_same_bits_in_any_company(features: str, way: None) -> None:
    arguments = problem((300, 130, 1000, 20), torch.float32, features)
    shuffled = torch.randperm(300, generator=torch.Generator().manual_seed(1)).tolist()
    assert_invariant(arguments, [[0], [128], [299], shuffled, shuffled[:33]])


@pytest.fixture
def probe() -> Iterator[None]:
    """It is made anew, before the test and after it."""
    matmuls_are_invariant.cache_clear()
    yield
    matmuls_are_invariant.cache_clear()


@pytest.mark.parametrize("fault", ["row", "column", "place", "side", "threads"])
def test_the_probe_refuses_matmuls_whose_bits_depend_on_the_place(
    fault: str, probe: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = linear._tile

    def summed(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None, out: torch.Tensor) -> None:
        if b is not None:
            return exact(x, w, b, out)
        torch.sum(x[:, None] * w, -1, out=out)
        if fault == "row":
            out[5:6] *= 1 + 1e-6
        if fault == "column":
            out[:, 5] *= 1 + 1e-6
        if fault == "place":  # the same products, whichever side the tokens are on
            out[5 :: 512 // len(w), 5] *= 1 + 1e-6
        if fault == "side" and len(w) == linear.ROW_TILE:
            out *= 1 + 1e-6
        if fault == "threads" and torch.get_num_threads() == 1:
            out *= 1 + 1e-6

    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        monkeypatch.setattr(linear, "_tile", summed)
        assert not matmuls_are_invariant(64, 2)
        assert torch.get_num_threads() == 2
        fault = "none"
        matmuls_are_invariant.cache_clear()
        assert matmuls_are_invariant(64, 2)
    finally:
        torch.set_num_threads(threads)


def test_a_probe_in_another_thread_changes_nobody_s_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    inside, go_on, asked = Event(), Event(), []

    def probe(width: int, threads: int) -> bool:
        asked.append(threads)
        if len(asked) == 1:
            torch.set_num_threads(1)
            inside.set()
            go_on.wait(30)
            torch.set_num_threads(threads)
        return True

    monkeypatch.setattr(module, "matmuls_are_invariant", probe)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        first, second = (Thread(target=module._invariant, args=(64,)) for _ in range(2))
        first.start()
        assert inside.wait(30)
        second.start()
        second.join(0.2)
        go_on.set()
        first.join()
        second.join()
    finally:
        torch.set_num_threads(before)
    assert asked == [2, 2]  # the second waited, where it would have read the probe's 1
