"""`adjudge train grpo` with every recipe that is named, in turn: what accelerate starts in several processes."""

from __future__ import annotations

import sys

from adjudge.cli import main

*recipes, last = sys.argv[1:]
for recipe in recipes:
    sys.argv = ["adjudge", "train", "grpo", recipe]
    try:
        main()
    except SystemExit as ended:
        print(f"{recipe} ended with {ended.code}", file=sys.stderr)
sys.argv = ["adjudge", "train", "grpo", last]
main()
