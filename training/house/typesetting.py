"""One text as different corpora set it, so that a judge learns to read through case and spacing."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random

_SPACED = re.compile(r"(n['’]t\b|['’](?:s|re|ve|ll|d|m)\b|[^\w\s'’]|['’](?!\w))", re.IGNORECASE)
_NAME = re.compile(r"(?<=[a-z,;] )[A-Z][a-z]+\b")
MARKERS = ("[MALE]", "[FEMALE]", "[NEUTRAL]")
"""What stands for names in corpora that have taken them out."""


def spaced(text: str) -> str:
    """Every mark a word of its own: "did n't go , he said"."""
    return re.sub(r"[ \t]+", " ", _SPACED.sub(r" \1 ", text)).strip()


def _nameless(texts: Sequence[str], random: Random) -> list[str]:
    """Names, which are what has a capital within a sentence too, as markers; the same name in all texts as the same."""
    marker = {name: random.choice(MARKERS) for name in sorted(set(_NAME.findall("\n".join(texts))))}
    named = (re.sub(r"\b[A-Z][a-z]+\b", lambda found: marker.get(found[0], found[0]), text) for text in texts)
    return [re.sub(r"\[ (\w+) \]", lambda found: f"[{found[1].upper()}]", spaced(text).lower()) for text in named]


def _each(style: Callable[[str], str]) -> Callable[[Sequence[str], Random], list[str]]:
    return lambda texts, random: [style(text) for text in texts]


STYLES: dict[str, tuple[float, Callable[[Sequence[str], Random], list[str]]]] = {
    "as it is": (0.5, _each(str)),
    "spaced in small letters": (0.15, _each(lambda text: spaced(text).lower())),
    "the same without names": (0.15, _nameless),
    "small letters": (0.1, _each(str.lower)),
    "spaced": (0.1, _each(spaced)),
}
"""By name, how often each comes, and what it makes of texts that belong together."""


def typeset(texts: Sequence[str], random: Random) -> list[str]:
    """Texts that belong together, all set in one style."""
    [(_, style)] = random.choices(list(STYLES.values()), weights=[weight for weight, _ in STYLES.values()])
    return style(texts, random)
