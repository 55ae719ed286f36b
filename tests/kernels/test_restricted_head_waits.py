"""How often a call of the restricted head waits for a device: never with labels on the host, at most once otherwise."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from adjudge.engine.running.head import Head
from adjudge.kernels import LabelSetError, restricted_logprobs
from adjudge.kernels.restricted_head_arguments import LabelRows, lay_out
from tests.kernels.absent_device import AbsentDevice, number_memory
from tests.kernels.restricted_cases import FEATURES, moved, problem

INTEGERS = ("rows", "label_ids", "label_offsets", "label_groups", "targets")
LABEL_ARGUMENTS = (*INTEGERS, "label_values")
ALL = "csr groups values targets rows norm bias softcap temperature strided"


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> AbsentDevice:
    """A device for which Triton's launchers run, with their launches caught; copies are made as they are for CUDA."""
    pytest.importorskip("triton", reason="triton is not installed")
    monkeypatch.setattr("adjudge.kernels.restricted_head.kernel_backend", lambda _: "triton")
    monkeypatch.setattr(
        "adjudge.kernels.restricted_head_arguments.to_device",
        lambda tensor, device: tensor.to(device, non_blocking=True),
    )
    return AbsentDevice()


def waits_of(device: AbsentDevice, run: Callable[[], object]) -> list[str]:
    from adjudge.bench.kernels.ahead_of_time import record
    from adjudge.kernels import restricted_head_triton

    device.waits.clear()
    with device:
        assert record(run, 90, restricted_head_triton)
    return list(device.waits)


def on(device: AbsentDevice, arguments: dict[str, Any], *staying: str) -> dict[str, Any]:
    """The arguments on the device, except those that stay on the host."""
    return {name: value if name in staying else device.put(value) for name, value in arguments.items()}


@pytest.mark.parametrize("features", ["", *FEATURES])
@pytest.mark.parametrize("normalizer", ["set", "full", "both"])
@pytest.mark.parametrize("labels", [5, 130])
def test_host_labels_never_wait_and_labels_on_the_device_wait_once(
    features: str, normalizer: str, labels: int, device: AbsentDevice
) -> None:
    arguments = problem((7, 20, 300, labels), torch.bfloat16, features) | {"normalizer": normalizer}
    assert waits_of(device, lambda: restricted_logprobs(**on(device, arguments, *LABEL_ARGUMENTS))) == []
    assert waits_of(device, lambda: restricted_logprobs(**on(device, arguments))) == ["aten._to_copy.default"]


@pytest.mark.parametrize("staying", INTEGERS)
def test_a_mixture_waits_once(staying: str, device: AbsentDevice) -> None:
    arguments = problem((7, 20, 300, 5), torch.bfloat16, ALL)
    assert len(waits_of(device, lambda: restricted_logprobs(**on(device, arguments, staying)))) == 1
    others = [name for name in LABEL_ARGUMENTS if name != staying]
    assert len(waits_of(device, lambda: restricted_logprobs(**on(device, arguments, *others)))) == 1


def test_values_on_the_device_ask_nothing_of_it(device: AbsentDevice) -> None:
    arguments = problem((7, 20, 300, 5), torch.bfloat16, ALL)
    assert waits_of(device, lambda: restricted_logprobs(**on(device, arguments, *INTEGERS))) == []


def test_what_the_kernels_get_is_the_same_from_host_and_device(device: AbsentDevice) -> None:
    for features in ("", "groups values targets rows", ALL):
        arguments = problem((7, 20, 300, 5), torch.bfloat16, features)

        def laid_out(arguments: dict[str, Any]) -> tuple[Tensor | None, LabelRows]:
            hidden, weight = arguments["hidden_ND"], arguments["weight_VD"]
            rows, *labels = (arguments.get(name) for name in LABEL_ARGUMENTS)
            ids, offsets, groups, targets, values = labels
            assert ids is not None
            return lay_out(hidden, len(weight), rows, ids, offsets, groups, values, targets)

        expected_rows, expected = laid_out(arguments)
        for staying in ((), ("label_ids", "targets"), LABEL_ARGUMENTS):
            with device:
                rows, labels = laid_out(on(device, arguments, *staying))
            for field in ("rows", *(field.name for field in dataclasses.fields(labels))):
                ours, true = (
                    (rows, expected_rows) if field == "rows" else (getattr(x, field) for x in (labels, expected))
                )
                if isinstance(true, Tensor):
                    assert ours.is_meta and torch.equal(number_memory(ours), true), field
                else:
                    assert ours == true, field


BAD: list[dict[str, Any]] = [
    {"rows": torch.tensor([0, 1, 2, 12, 0, 0, 0])},
    {"label_ids": torch.full((21,), 300)},
    {"label_offsets": torch.arange(8) * 3 + 1},
    {"label_offsets": torch.arange(8) * 4},
    {"label_offsets": torch.tensor([0, 3, 3, 9, 12, 15, 18, 21])},
    {
        "label_offsets": torch.tensor([0]),
        "rows": torch.tensor([], dtype=torch.int64),
        "targets": torch.tensor([], dtype=torch.int64),
    },
    {"label_offsets": torch.tensor([0, 1 << 60, -5, 9, 12, 15, 18, 21])},
    {"label_groups": torch.tensor([0, 1, 2] * 6 + [0, 3, 0])},
    {"label_groups": torch.tensor([0, 1, 2] * 6 + [0, -1, 0])},
    {"label_groups": torch.tensor([0, 1, 2] * 6 + [0, 1 << 62, 0])},
    {"label_groups": torch.tensor([0, 1, 2] * 3 + [0, 2, 0] + [0, 1, 2] * 3)},
    {"label_values": torch.ones(20)},
    {"targets": torch.tensor([0, 1, 2, 3, 0, 0, 0])},
    {"label_ids": torch.full((21,), -1), "targets": torch.full((7,), -1)},
]


@pytest.mark.parametrize("bad", BAD)
def test_a_mistake_has_the_same_message_on_host_and_device(bad: dict[str, Any], device: AbsentDevice) -> None:
    good = problem((7, 20, 300, 1), torch.float32, "rows") | {
        "label_ids": torch.arange(21),
        "label_offsets": torch.arange(8) * 3,
        "label_groups": torch.tensor([0, 1, 2] * 7),
        "label_values": torch.arange(21.0),
        "targets": torch.zeros(7, dtype=torch.int64),
    }
    messages = set()
    for arguments in (good | bad, on(device, good | bad, *LABEL_ARGUMENTS), on(device, good | bad)):
        with pytest.raises(LabelSetError) as caught, device:
            restricted_logprobs(**arguments)
        messages.add(str(caught.value))
    [message] = messages
    assert next(iter(bad)) in message


def test_labels_of_a_third_device_are_refused(device: AbsentDevice) -> None:
    arguments = problem((7, 20, 300, 5), torch.float32, ALL)
    for name in LABEL_ARGUMENTS:
        with pytest.raises(ValueError, match=f"{name} is on meta and hidden_ND on cpu: move it there"):
            restricted_logprobs(**(arguments | {name: arguments[name].to("meta")}))
    with pytest.raises(ValueError, match="weight_VD is on cpu and hidden_ND on meta"):
        restricted_logprobs(**(moved(arguments, "meta") | {"weight_VD": arguments["weight_VD"]}))


def test_the_engine_waits_only_for_the_result(device: AbsentDevice) -> None:
    head = Head(device.put(torch.ones(300, 20)), None, None, 0.0, 0.0, None, 1.0)
    hidden_ND = device.put(torch.ones(2, 20))
    assert len(waits_of(device, lambda: head.logprobs(hidden_ND, [(1, 2), (3,)]))) == 1


@pytest.mark.parametrize(
    "ask",
    [
        bool,
        int,
        Tensor.tolist,
        Tensor.cpu,
        Tensor.nonzero,
        Tensor.unique,
        Tensor.bincount,
        lambda x: x[x > 0],
        lambda x: x[torch.tensor([0])],
        lambda x: x.repeat_interleave(x),
        lambda x: x.equal(x),
        lambda x: torch.ones(1).to(x.device),
        lambda x: x.copy_(torch.tensor([1])),
        lambda x: x.masked_select(x > 0),
    ],
)
def test_every_way_to_wait_is_seen(ask: Callable[[Tensor], object], device: AbsentDevice) -> None:
    x = device.put(torch.tensor([2]))
    with device:
        ask(x)
    assert device.waits
