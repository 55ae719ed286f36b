from __future__ import annotations

import pytest
import torch
from torch import nn

from adjudge.kernels import linear
from adjudge.kernels.linear import ROW_TILE, SMALLER_TILES, make_batch_invariant, padded_rows, tiled_linear


@pytest.mark.parametrize(("width", "outputs"), [(576, 192), (48, 130), (17, 3), (1537, 64)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bias", [True, False])
def test_a_row_is_bit_equal_wherever_it_stands_and_near_float64(
    width: int, outputs: int, dtype: torch.dtype, bias: bool
) -> None:
    generator = torch.Generator().manual_seed(width)
    rows = 4096 + 3 * ROW_TILE
    x, w, b = (
        torch.randn(*shape, generator=generator).to(dtype) for shape in ((rows, width), (outputs, width), (outputs,))
    )
    whole = tiled_linear(x, w, b if bias else None)
    exact = x.double() @ w.double().T + (b.double() if bias else 0)
    plain = nn.functional.linear(x, w, b if bias else None)
    assert (whole - exact).abs().max() <= 2 * (plain - exact).abs().max() + torch.finfo(dtype).eps
    order = torch.randperm(rows, generator=generator)
    assert torch.equal(tiled_linear(x[order], w, b if bias else None), whole[order])
    for count in (ROW_TILE, 5 * ROW_TILE):
        assert torch.equal(tiled_linear(x[7 : 7 + count], w, b if bias else None), whole[7 : 7 + count])
    for count in (1, 2, 3, *SMALLER_TILES, 29, 33, 61, 100):
        assert torch.equal(tiled_linear(x[7 : 7 + count], w, b if bias else None), whole[7 : 7 + count])
    for row in (0, 2049, 4095):
        assert torch.equal(tiled_linear(x[row, None], w, b if bias else None)[0], whole[row])
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3 - min(2, threads))
        for count in (ROW_TILE, 8 * ROW_TILE, rows):
            assert torch.equal(tiled_linear(x[:count], w, b if bias else None), whole[:count])
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("spoilt", [4, 16, 256])
def test_tiles_that_do_not_agree_with_the_others_are_not_used(spoilt: int, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = linear._tile

    def careless(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None, out: torch.Tensor) -> None:
        exact(x, w, b, out)
        if x.shape[0] == spoilt:
            out *= 1 + 1e-6

    x, w = torch.randn(spoilt, 32), torch.randn(32, 32)
    expected = tiled_linear(x, w)
    linear._tiles.cache_clear()
    monkeypatch.setattr(linear, "_tile", careless)
    try:
        assert spoilt not in linear._tiles(32, 32, torch.float32, False, 1)
        assert torch.equal(tiled_linear(x, w), expected)
    finally:
        linear._tiles.cache_clear()


def test_what_is_left_over_goes_through_the_smallest_tile_that_holds_it() -> None:
    tiles = (32, 1024, 256, 64, 4, 8, 16, 24)
    assert [linear._cut(rows, tiles) for rows in (0, 1, 4, 9, 20, 28, 100)] == [
        [], [4], [4], [16], [24], [32], [64, 32, 4]
    ]  # fmt: skip
    assert linear._cut(1124, (32,)) == [32] * 36  # nothing else agrees: padded
    assert [padded_rows(n, 4) for n in (0, 1, 4, 33)] == [4, 4, 4, 36]


def test_a_model_shares_its_weights_with_its_batch_invariant_layers() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4, bias=False)).requires_grad_(False)
    x = torch.randn(1, ROW_TILE, 8)
    before, weight = model(x), model[0].weight
    assert make_batch_invariant(model) == 2
    assert model[0].weight is weight
    assert torch.allclose(model(x), before, atol=1e-6)
    assert make_batch_invariant(model) == 0
