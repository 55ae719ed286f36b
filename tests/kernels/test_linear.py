from __future__ import annotations

import pytest
import torch
from torch import nn

from adjudge.kernels import linear
from adjudge.kernels.linear import ROW_TILE, make_batch_invariant, padded_rows, tiled_linear


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
    for row in (0, 2049, 4095):
        alone = nn.functional.pad(x[row, None], (0, 0, 0, ROW_TILE - 1))
        assert torch.equal(tiled_linear(alone, w, b if bias else None)[0], whole[row])
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3 - min(2, threads))
        for count in (ROW_TILE, 8 * ROW_TILE, rows):
            assert torch.equal(tiled_linear(x[:count], w, b if bias else None), whole[:count])
    finally:
        torch.set_num_threads(threads)


def test_tiles_that_do_not_agree_with_the_smallest_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = linear._tile

    def careless(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None, out: torch.Tensor) -> None:
        exact(x, w, b, out)
        if x.shape[0] == 256:
            out *= 1 + 1e-6

    linear._tiles.cache_clear()
    monkeypatch.setattr(linear, "_tile", careless)
    try:
        assert 256 not in linear._tiles(32, 32, torch.float32, 1)
    finally:
        linear._tiles.cache_clear()


def test_rows_must_fill_whole_tiles() -> None:
    assert [padded_rows(n) for n in (0, 1, 32, 33)] == [32, 32, 32, 64]
    with pytest.raises(ValueError, match="multiple of 32 rows, got 33"):
        tiled_linear(torch.ones(33, 4), torch.ones(2, 4))


def test_a_model_shares_its_weights_with_its_batch_invariant_layers() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4, bias=False)).requires_grad_(False)
    x = torch.randn(1, ROW_TILE, 8)
    before, weight = model(x), model[0].weight
    assert make_batch_invariant(model) == 2
    assert model[0].weight is weight
    assert torch.allclose(model(x), before, atol=1e-6)
    assert make_batch_invariant(model) == 0
