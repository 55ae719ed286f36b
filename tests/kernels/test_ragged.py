from __future__ import annotations

import pytest
import torch

from adjudge.kernels.ragged import RaggedError, check_offsets, whole_numbers


@pytest.mark.parametrize(
    ("offsets", "empty", "message"),
    [
        ([], True, "is empty: it must start at 0 and end at 5"),
        ([1, 5], True, "runs from 1 to 5"),
        ([0, 4], True, "runs from 0 to 4"),
        ([0, 3, 2, 5], True, r"offsets\[2\] is 2 after 3: offsets may not fall"),
        ([0, 7, 5], True, r"offsets\[2\] is 5 after 7: offsets may not fall"),
        ([0, 2, 2, 5], False, r"offsets\[2\] is 2 after 2: row 1 is empty"),
    ],
)
def test_offsets_that_cut_no_rows_are_refused_at_their_place(offsets: list[int], empty: bool, message: str) -> None:
    with pytest.raises(RaggedError, match=message):
        check_offsets(torch.tensor(offsets, dtype=torch.int64), 5, "row", empty=empty)


def test_good_offsets_pass() -> None:
    check_offsets(torch.tensor([0]), 0, "row", empty=False)
    check_offsets(torch.tensor([0, 2, 5]), 5, "row", empty=False)
    check_offsets(torch.tensor([0, 0, 5, 5]), 5, "row", empty=True)


def test_whole_numbers_are_one_dimension_of_integers() -> None:
    assert torch.equal(whole_numbers("ids", torch.arange(6, dtype=torch.int32)[::2]), torch.tensor([0, 2, 4]))
    with pytest.raises(TypeError, match="ids is a list: pass a tensor of integers"):
        whole_numbers("ids", [1])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="ids has dtype torch.float32"):
        whole_numbers("ids", torch.ones(2))
    with pytest.raises(RaggedError, match=r"ids has shape \(1, 2\)"):
        whole_numbers("ids", torch.ones(1, 2, dtype=torch.int64))
