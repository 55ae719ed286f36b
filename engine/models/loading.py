"""Weights as transformers loads them: what it fails with in our words, and none made up."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from adjudge.engine.errors import AdjudgeError, ModelCorrupt, ModelUnsupported, reason
from adjudge.engine.models.quiet import quiet


@contextlib.contextmanager
def loading(name: str) -> Iterator[None]:
    """A block in which transformers loads weights; what it fails with becomes ModelCorrupt or ModelUnsupported."""
    import torch
    from safetensors import SafetensorError

    try:
        with quiet():
            yield
    except (torch.OutOfMemoryError, AdjudgeError):
        raise
    except SafetensorError as error:
        raise ModelCorrupt(f"the weights of {name} are unreadable ({reason(error)}): save them again") from error
    except (OSError, ValueError, KeyError, ImportError, RuntimeError) as error:
        raise ModelUnsupported(f"transformers cannot open {name} ({reason(error)}); choose another") from error


def require_all_weights(name: str, info: dict[str, Any]) -> None:
    """Raise ModelCorrupt where transformers filled absent weights with random numbers."""
    if missing := sorted(info["missing_keys"]):
        rest = f" and {len(missing) - 1} more" if missing[1:] else ""
        raise ModelCorrupt(f"{name} has no weights for {missing[0]}{rest}: it is incomplete; download or save it again")
