"""A block in which transformers prints nothing."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from threading import Lock
from typing import Any

from adjudge.engine.threads.forked import Renewed

_lock, _silence = Renewed(Lock), contextlib.ExitStack()
_inside = 0


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Within the block transformers prints no log lines, warnings or progress bars; errors are still raised.

    Blocks of several threads may overlap: the last to end brings back what was before the first.
    """
    global _inside
    with _lock.here:
        if not _inside:
            _silence.enter_context(_silent())
        _inside += 1
    try:
        yield
    finally:
        with _lock.here:
            _inside -= 1
            if not _inside:
                _silence.close()


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    from transformers.utils import logging as transformers_logging

    logging: Any = transformers_logging  # its switches are untyped

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
