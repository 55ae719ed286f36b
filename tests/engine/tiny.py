"""A tiny model, prompts for it, and what tests ask of it."""

from __future__ import annotations

import random

from adjudge.engine.engine import Engine
from adjudge.engine.text.labels import Labels
from adjudge.engine.text.prompt import Message, Prompt, Segment

TINY = "dummy:tiny-llama"
DIGITS = Labels(("1", "2", "3", "4", "5"))


def prompts_sharing_stems(count: int, seed: int = 0) -> list[list[int]]:
    """Token sequences that share prefixes of odd lengths, some of them prefixes of others, some longer than a band.

    There are two more than asked for: the first without its last token, and the first again.
    """
    source = random.Random(seed)
    stems = [[source.randrange(256) for _ in range(n)] for n in (1, 17, 150)]
    prompts = [source.choice(stems) + [source.randrange(4) for _ in range(source.randint(1, 40))] for _ in range(count)]
    return [*prompts, prompts[0][:-1], prompts[0]]


def plain_prompts(count: int, seed: int = 0) -> list[list[int]]:
    """As many token sequences as asked for, shorter ones, of which some begin alike."""
    source = random.Random(seed)
    stems = [[source.randrange(256) for _ in range(n)] for n in (1, 17, 40)]
    return [source.choice(stems) + [source.randrange(256) for _ in range(source.randint(1, 30))] for _ in range(count)]


def pool_gb(model: str, blocks: int) -> float:
    """A cache size that gives so many blocks besides the padding's."""
    engine = Engine(model, kv_cache_gb=0.05)
    return 0.05 * blocks / engine.cache.pool.usable * 1.001


def message(text: str) -> Message:
    """A user's message of trusted text."""
    return Message("user", Prompt((Segment(text, trusted=True),)))
