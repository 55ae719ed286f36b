"""A program of its own: compiles the grammar that it reads, and ends badly where that takes too much.

A schema of a few hundred bytes can ask for any amount of time and memory, and nothing stops a compilation once it has
begun: so it is tried where the system can end it. It imports nothing of adjudge, which would take longer than it does.
"""

from __future__ import annotations

import contextlib
import sys

SECONDS, BYTES = 5, 1 << 31
"""Of a processor's time, and of address space."""
TOO_MUCH = 3
"""How it ends where memory ran out and Python noticed; otherwise the system ends it by a signal."""


def main() -> None:
    """Compile what stands on the standard input; whether it makes sense is for others to say."""
    _limit()
    try:
        from llguidance import LLMatcher, LLTokenizer

        LLMatcher(LLTokenizer("byte"), sys.stdin.buffer.read().decode(), log_level=0)
    except MemoryError:
        sys.exit(TOO_MUCH)


def _limit() -> None:
    try:
        import resource
    except ImportError:  # Windows has none: there the time that its parent waits is the limit
        return
    for kind, most in ((resource.RLIMIT_CPU, SECONDS), (resource.RLIMIT_AS, BYTES), (resource.RLIMIT_CORE, 0)):
        hard = resource.getrlimit(kind)[1]
        with contextlib.suppress(ValueError, OSError):  # some systems know no limit of that kind
            resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


if __name__ == "__main__":
    main()
