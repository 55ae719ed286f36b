from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from adjudge.kernels import linear, prepacked_weights
from adjudge.kernels.linear import PART, BatchInvariantLinear, agreeing_rows, invariant_linear, prepacking_agrees
from adjudge.kernels.prepacked_weights import keep_prepacked, prepacking_of
from adjudge.kernels.restricted_head_arguments import HeadWeights
from adjudge.kernels.restricted_head_torch import vocabulary_log_sum
from adjudge.kernels.vocabulary_logits import vocabulary_logits

WIDTH, OUTPUTS = 96, 80


@pytest.fixture(autouse=True)
def probed_afresh() -> Iterator[None]:
    prepacking_agrees.cache_clear()
    yield
    prepacking_agrees.cache_clear()


@pytest.fixture
def packs() -> None:
    kind = WIDTH, OUTPUTS, torch.float32, False, torch.get_num_threads()
    if not agreeing_rows(*kind) or not prepacking_agrees(*kind):
        pytest.skip("oneDNN's matmuls of prepacked weights do not agree with those of plain ones on this machine")


def count_prepacked(monkeypatch: pytest.MonkeyPatch) -> list[torch.Tensor]:
    """The weights that are prepacked from now on."""
    seen, prepack = list[torch.Tensor](), prepacked_weights.prepack

    def counted(weight: torch.Tensor) -> torch.Tensor:
        seen.append(weight)
        return prepack(weight)

    monkeypatch.setattr(prepacked_weights, "prepack", counted)
    return seen


@pytest.mark.parametrize(("width", "outputs"), [(576, 192), (1536, 576), (17, 3), (64, 4100)])
@pytest.mark.parametrize("bias", [True, False])
def test_prepacked_weights_give_the_bits_of_plain_ones(width: int, outputs: int, bias: bool) -> None:
    x, w, b = torch.randn(700, width), torch.randn(outputs, width), torch.randn(outputs) if bias else None
    kept = w.clone()
    keep_prepacked(kept)
    for rows in (0, 1, 2, 3, 5, 16, 31, 64, 257, 700):
        assert torch.equal(invariant_linear(x[:rows], kept, b), invariant_linear(x[:rows], w, b))
    assert torch.equal(invariant_linear(x.T.contiguous().T[::3], kept, b), invariant_linear(x[::3], w, b))


@pytest.mark.usefixtures("packs")
def test_a_weight_is_prepacked_when_it_is_first_used_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = count_prepacked(monkeypatch)
    layer = BatchInvariantLinear(WIDTH, OUTPUTS, bias=False).requires_grad_(False)
    keep_prepacked(layer.weight)
    keep_prepacked(layer.weight)
    assert not seen
    for rows in (1, 4, 50):
        layer(torch.randn(1, rows, WIDTH))
    assert len(seen) == 1 and torch.equal(seen[0], layer.weight)
    invariant_linear(torch.randn(4, WIDTH), torch.randn(OUTPUTS, WIDTH))
    assert len(seen) == 1


@pytest.mark.usefixtures("packs")
@pytest.mark.parametrize("inference", [True, False])
def test_changed_weights_are_prepacked_again(inference: bool) -> None:
    x, new = torch.randn(9, WIDTH), torch.randn(3, OUTPUTS, WIDTH)
    weight = nn.Parameter(torch.randn(OUTPUTS, WIDTH), requires_grad=False)
    keep_prepacked(weight)
    invariant_linear(x, weight)
    with torch.inference_mode(inference):
        weight.copy_(new[0])
        assert torch.equal(invariant_linear(x, weight), invariant_linear(x, new[0]))
        weight[3] = new[1, 3]
        assert torch.equal(invariant_linear(x, weight)[:, 3], invariant_linear(x, new[1])[:, 3])
        weight.data = new[2]
        assert torch.equal(invariant_linear(x, weight), invariant_linear(x, new[2]))


def test_the_copy_goes_with_the_weight() -> None:
    before = len(prepacked_weights._prepackings)
    weight = torch.randn(OUTPUTS, WIDTH)
    keep_prepacked(weight)
    invariant_linear(torch.randn(4, WIDTH), weight)
    assert len(prepacked_weights._prepackings) == before + 1 and prepacking_of(weight) is not None
    del weight
    assert len(prepacked_weights._prepackings) == before


@pytest.mark.usefixtures("packs")
@pytest.mark.parametrize("spoilt", ["other bits", "no layout"])
def test_where_prepacked_weights_have_other_bits_plain_ones_serve(spoilt: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prepack = prepacked_weights.prepack

    def strange(weight: torch.Tensor) -> torch.Tensor:
        if spoilt == "no layout":
            raise RuntimeError("this torch is built without it")
        return prepack(weight * (1 + 1e-6))

    for module in (prepacked_weights, linear):
        monkeypatch.setattr(module, "prepack", strange)
    prepacking_agrees.cache_clear()
    x, w = torch.randn(5, WIDTH), torch.randn(OUTPUTS, WIDTH)
    expected = invariant_linear(x, w)
    keep_prepacked(w)
    assert torch.equal(invariant_linear(x, w), expected)


@pytest.mark.usefixtures("packs")
@pytest.mark.parametrize("outputs", [9000, 2 * PART, 17])
def test_of_a_head_each_part_is_prepacked_once_whether_labels_or_texts_are_read(
    outputs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, weight = torch.randn(9, WIDTH), torch.randn(outputs, WIDTH)

    def read(weight_VD: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        head = HeadWeights(weight_VD, None, 1e-6, None, None, 1.0)
        return vocabulary_log_sum(x, None, len(x), head), vocabulary_logits(x, head)

    expected = read(weight.clone())
    seen = count_prepacked(monkeypatch)
    keep_prepacked(weight, PART)
    for _ in range(2):
        assert all(map(torch.equal, read(weight), expected))
    assert len(seen) == -(-outputs // PART)
    assert torch.equal(torch.cat(seen), weight)
