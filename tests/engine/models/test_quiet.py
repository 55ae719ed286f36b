from __future__ import annotations

import threading
import warnings
from typing import Any

import pytest
from transformers.utils import logging as transformers_logging

from adjudge.engine.models.quiet import quiet

logging: Any = transformers_logging


def state() -> tuple[int, bool, list[Any]]:
    return logging.get_verbosity(), logging.is_progress_bar_enabled(), list(warnings.filters)


@pytest.mark.parametrize("first_ends_first", [True, False])
def test_blocks_that_overlap_in_two_threads_leave_no_silence_behind(first_ends_first: bool) -> None:
    began, goes = threading.Event(), threading.Event()

    def other() -> None:
        with quiet():
            began.set()
            assert goes.wait(60)

    before = state()
    thread = threading.Thread(target=other)
    with quiet():
        silent = state()
        assert silent != before
        thread.start()
        assert began.wait(60)
        if not first_ends_first:
            goes.set()
            thread.join()
            assert state() == silent
    if first_ends_first:
        assert state() == silent
        goes.set()
        thread.join()
    assert state() == before


def test_a_block_in_a_block_and_one_that_fails_leave_what_was_before() -> None:
    before = state()
    with pytest.raises(ValueError, match="no"), quiet():
        with quiet():
            silent = state()
        assert state() == silent != before
        raise ValueError("no")
    assert state() == before
