"""Autocast and a default device, which callers may have set in their thread: our code computes the same without."""

from collections.abc import Callable
from contextlib import ExitStack
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

AUTOCASTS = ("cpu", "cuda")

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def undisturbed(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """The function, with autocast off and new tensors on the host where it names no device for them."""

    @wraps(function)
    def run(*args: Arguments.args, **named: Arguments.kwargs) -> Result:
        casts = [kind for kind in AUTOCASTS if torch.is_autocast_enabled(kind)]
        if not casts and torch.empty(0).device.type == "cpu":
            return function(*args, **named)
        with torch.device("cpu"), ExitStack() as stack:
            for kind in casts:
                stack.enter_context(torch.autocast(kind, enabled=False))
            return function(*args, **named)

    return run
