"""A program of its own: compiles the grammar that it reads, and ends with an error where that takes too much.

A schema of a few hundred bytes can ask for any amount of time and memory, and nothing stops a compilation once it has
begun: so it is tried where the system can end it. It imports nothing of adjudge, which would take longer than it does.
"""

from __future__ import annotations

import resource
import sys

SECONDS, BYTES = 5, 1 << 31
"""Of a processor's time, and of address space."""


def main() -> None:
    """Compile what stands on the standard input; whether it makes sense is for others to say."""
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    from llguidance import LLMatcher, LLTokenizer

    LLMatcher(LLTokenizer("byte"), sys.stdin.read(), log_level=0)


if __name__ == "__main__":
    main()
