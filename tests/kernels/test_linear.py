from __future__ import annotations

import pytest
import torch
from torch import nn

from adjudge.kernels import linear
from adjudge.kernels.linear import (
    LEAST_FILLED,
    ROW_TILE,
    agreeing_rows,
    invariant_linear,
    large_tile,
    make_batch_invariant,
    padded_rows,
)


@pytest.fixture(params=["as the probe says", "without oneDNN"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "without oneDNN":
        monkeypatch.setattr(linear, "agreeing_rows", lambda *_: 0)


def in_order(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None) -> torch.Tensor:
    """A dense layer whose products are added up in float32 one after the other, as oneDNN's.

    torch's own are added up in blocks on some machines, which is up to three times as exact.
    """
    sums = torch.zeros(len(x), len(w))
    for column in range(x.shape[1]):
        sums.addr_(x[:, column].float(), w[:, column].float())
    return (sums if b is None else sums + b.float()).to(x.dtype)


@pytest.mark.parametrize(("width", "outputs"), [(576, 192), (48, 130), (17, 3), (1537, 64)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.usefixtures("path")
def test_a_row_is_bit_equal_wherever_it_stands_and_near_float64(
    width: int, outputs: int, dtype: torch.dtype, bias: bool
) -> None:
    generator = torch.Generator().manual_seed(width)
    rows = 4096 + 3 * ROW_TILE
    x, w, b = (
        torch.randn(*shape, generator=generator).to(dtype) for shape in ((rows, width), (outputs, width), (outputs,))
    )
    whole = invariant_linear(x, w, b if bias else None)
    some = x[::16]
    exact = some.double() @ w.double().T + (b.double() if bias else 0)
    usual = (nn.functional.linear(some, w, b if bias else None), in_order(some, w, b if bias else None))
    allowed = 2 * max((one - exact).abs().max() for one in usual) + torch.finfo(dtype).eps
    assert (whole[::16] - exact).abs().max() <= allowed
    order = torch.randperm(rows, generator=generator)
    assert torch.equal(invariant_linear(x[order], w, b if bias else None), whole[order])
    for count in (ROW_TILE, 5 * ROW_TILE):
        assert torch.equal(invariant_linear(x[7 : 7 + count], w, b if bias else None), whole[7 : 7 + count])
    for count in (0, 1, 2, 3, 4, 8, 16, 24, 29, 33, 61, 100):
        assert torch.equal(invariant_linear(x[7 : 7 + count], w, b if bias else None), whole[7 : 7 + count])
    for row in (0, 2049, 4095):
        assert torch.equal(invariant_linear(x[row, None], w, b if bias else None)[0], whole[row])
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3 - min(2, threads))
        for count in (ROW_TILE, 8 * ROW_TILE, rows):
            assert torch.equal(invariant_linear(x[:count], w, b if bias else None), whole[:count])
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("spoilt", [2, 17, 1000])
def test_matmuls_whose_rows_do_not_agree_are_not_used(spoilt: int, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = linear._onednn

    def careless(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None) -> torch.Tensor:
        found = exact(x, w, b)
        return found * (1 + 1e-6) if len(x) == spoilt else found

    x, w = torch.randn(spoilt, 32), torch.randn(32, 32)
    agreeing_rows.cache_clear()
    monkeypatch.setattr(linear, "_onednn", careless)
    try:
        assert not agreeing_rows(32, 32, torch.float32, False, 1)
        assert torch.equal(invariant_linear(x, w)[:1], invariant_linear(x[:1], w))
    finally:
        agreeing_rows.cache_clear()


def test_no_more_rows_go_at_once_than_the_probe_has_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    if not (most := agreeing_rows(16, 20_000, torch.float32, False, torch.get_num_threads())):
        pytest.skip("oneDNN's rows do not agree on this machine")
    assert 33 <= most < 1000 and most * 20_000 <= linear.PROBED_VALUES
    exact, seen = linear._onednn, list[int]()

    def counted(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None) -> torch.Tensor:
        seen.append(len(x))
        return exact(x, w, b)

    x, w = torch.randn(2 * most + 1, 16), torch.randn(20_000, 16)
    expected = invariant_linear(x[:most], w)
    monkeypatch.setattr(linear, "_onednn", counted)
    assert torch.equal(invariant_linear(x, w)[:most], expected)
    assert seen == [most, most, 1]


def counts_of_tiles(monkeypatch: pytest.MonkeyPatch, spoilt: int = 0) -> list[int]:
    """The rows of every matmul from now on, of which those with `spoilt` rows are a little wrong."""
    exact, seen = linear._tile, list[int]()

    def counted(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None, out: torch.Tensor) -> None:
        seen.append(len(x))
        exact(x, w, b, out)
        if len(x) == spoilt:
            out.mul_(1.01)

    monkeypatch.setattr(linear, "_tile", counted)
    return seen


def test_many_rows_go_at_once_where_they_have_the_bits_of_few(monkeypatch: pytest.MonkeyPatch) -> None:
    if not (large := large_tile(64, 64, torch.bfloat16, False, torch.get_num_threads())):
        pytest.skip("no large tile agrees with small ones on this machine")
    monkeypatch.setattr(linear, "agreeing_rows", lambda *_: 0)
    seen = counts_of_tiles(monkeypatch)
    x, w = torch.randn(2 * large, 64).bfloat16(), torch.randn(64, 64).bfloat16()
    whole = invariant_linear(x, w)
    assert seen == [large, large]
    for rows, tiles in (
        (ROW_TILE, [ROW_TILE]),
        (large + ROW_TILE + 1, [large, ROW_TILE, ROW_TILE]),
        (large + large // LEAST_FILLED, [large, large]),
    ):
        seen.clear()
        assert torch.equal(invariant_linear(x[:rows], w), whole[:rows])
        assert seen == tiles


@pytest.mark.parametrize("width", [64, 48])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_large_tile_that_does_not_agree_is_not_used(
    width: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = width, 64, dtype, False, torch.get_num_threads()
    if not (first := large_tile(*kind)):
        pytest.skip("no large tile agrees with small ones on this machine")
    large_tile.cache_clear()
    counts_of_tiles(monkeypatch, spoilt=first)
    try:
        assert large_tile(*kind) != first
    finally:
        large_tile.cache_clear()


@pytest.mark.parametrize("width", [1, 2, 17, 64])
def test_a_probe_sees_nothing_but_rounding(width: int) -> None:
    x, w, b = linear._cancelling(40, width, 30, torch.float64, True)
    assert b is not None
    assert float((x @ w.T).abs().max()) < 1e-12 and float(b.abs().max()) < 1e-4
    assert width == 1 or float(x.abs().mean()) > 0.1


def test_a_type_that_onednn_does_not_know_goes_through_tiles() -> None:
    assert not agreeing_rows(8, 4, torch.float64, False, 1)
    x, w = torch.randn(3, 8, dtype=torch.float64), torch.randn(4, 8, dtype=torch.float64)
    assert torch.allclose(invariant_linear(x, w), x @ w.T)


def test_rows_are_padded_to_whole_units() -> None:
    assert [padded_rows(n, 4) for n in (0, 1, 4, 33)] == [4, 4, 4, 36]


def test_a_model_shares_its_weights_with_its_batch_invariant_layers() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4, bias=False)).requires_grad_(False)
    x = torch.randn(1, ROW_TILE, 8)
    before, weight = model(x), model[0].weight
    assert make_batch_invariant(model) == 2
    assert model[0].weight is weight
    assert torch.allclose(model(x), before, atol=1e-6)
    assert make_batch_invariant(model) == 0
