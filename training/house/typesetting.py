"""One text as different corpora set it, so that a judge learns to read through case and spacing."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

_SPACED = re.compile(r"(n['’]t\b|['’](?:s|re|ve|ll|d|m)\b|[^\w\s'’]|['’](?!\w))", re.IGNORECASE)
_NAME = re.compile(r"(?<=[a-z,;] )[A-Z][a-z]+\b")
MARKERS = ("[MALE]", "[FEMALE]", "[NEUTRAL]")
"""What stands for names in corpora that have taken them out."""


def spaced(text: str) -> str:
    """Every mark a word of its own: "did n't go , he said"."""
    return re.sub(r"[ \t]+", " ", _SPACED.sub(r" \1 ", text)).strip()


def _nameless(text: str, random: Random) -> str:
    """Names, which are what has a capital within a sentence too, as markers; the same name as the same marker."""
    marker = {name: random.choice(MARKERS) for name in sorted(set(_NAME.findall(text)))}
    return re.sub(r"\b[A-Z][a-z]+\b", lambda found: marker.get(found[0], found[0]), text)


STYLES: dict[str, tuple[float, Callable[[str, Random], str]]] = {
    "as it is": (0.5, lambda text, random: text),
    "spaced in small letters": (0.15, lambda text, random: spaced(text).lower()),
    "the same without names": (
        0.15,
        lambda text, random: re.sub(
            r"\[ (\w+) \]", lambda found: f"[{found[1].upper()}]", spaced(_nameless(text, random)).lower()
        ),
    ),
    "small letters": (0.1, lambda text, random: text.lower()),
    "spaced": (0.1, lambda text, random: spaced(text)),
}
"""By name, how often each comes, and what it makes of a text."""


def typeset(texts: list[str], random: Random) -> list[str]:
    """Texts that belong together, all set in one style."""
    [(_, style)] = random.choices(list(STYLES.values()), weights=[weight for weight, _ in STYLES.values()])
    seed = random.random()
    return [style(text, Random(seed)) for text in texts]
