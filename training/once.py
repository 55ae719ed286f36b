"""Each question once: what a journal has is not asked for again, and equal questions are one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from adjudge.engine.score import UNKEPT
from adjudge.rewards.journal import Journal

T = TypeVar("T")


def once(
    journal: Journal | None,
    keys: Sequence[str],
    ask: Callable[[list[int]], Iterator[tuple[int, T]]],
    *,
    pack: Callable[[T], bytes],
    unpack: Callable[[bytes], T],
    ended: Callable[[T], str | None],
) -> Iterator[tuple[int, T]]:
    """(place, answer) of every key: first what the journal has, then what `ask` says of the places that are new.

    `ask` numbers its answers by the places it is given. Each is in the journal before it goes out, unless how it
    `ended` does not lie in what was asked (a timeout).
    """
    places: dict[str, list[int]] = {}
    for place, key in enumerate(keys):
        places.setdefault(key, []).append(place)
    known = {} if journal is None else journal.get(places)
    for key, raw in known.items():
        assert journal is not None
        with journal.naming_damage():
            answer = unpack(raw)
        yield from ((place, answer) for place in places[key])
    new = [key for key in places if key not in known]
    for number, answer in ask([places[key][0] for key in new]) if new else ():
        if journal is not None and ended(answer) not in UNKEPT:
            journal.put(new[number], pack(answer))
        yield from ((place, answer) for place in places[new[number]])
