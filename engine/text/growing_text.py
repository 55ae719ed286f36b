"""`GrowingText`: the text of tokens as they come."""

from __future__ import annotations

from collections.abc import Callable, Sequence

BROKEN = "\ufffd"
"""What a tokenizer writes for bytes that are no character, or none yet."""

UNFINISHED = 4
"""Tokens of one byte at least that hold all of a character which is none yet."""


class GrowingText:
    """What tokens say: each is decoded once, with those before it that were part of the same character.

    `settled` are the characters that no token to come can change. With `bytewise` the tokenizer decodes byte by byte,
    so that bytes which never come to a character need not be held; others spoil a whole run of them by its end.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], bytewise: bool = False) -> None:
        self.settled = ""
        self._decode, self._bytewise = decode, bytewise
        self._rest: list[int] = []
        self._searched = 0

    def add(self, token: int) -> None:
        """Go on by a token."""
        self._rest.append(token)
        found = self._decode(self._rest)
        if not found.endswith(BROKEN):
            self.settled += found
            self._rest.clear()
        elif self._bytewise and len(self._rest) > 2 * UNFINISHED:
            before, last = self._rest[:-UNFINISHED], self._rest[-UNFINISHED:]
            if (settled := self._decode(before)) + self._decode(last) == found:
                self.settled += settled
                self._rest = last

    def whole(self) -> str:
        """The text, with what is no character yet."""
        return self.settled + self._decode(self._rest) if self._rest else self.settled

    def first(self, strings: Sequence[str]) -> int | None:
        """Where in the settled text the first of these begins; the same strings must be asked for each time."""
        longest = max(map(len, strings), default=0)
        start = max(0, self._searched - longest + 1)
        self._searched = len(self.settled)
        places = [place for string in strings if (place := self.settled.find(string, start)) >= 0]
        return min(places, default=None)

    def ended(self, strings: Sequence[str]) -> tuple[str, bool]:
        """The whole text up to the first of these, and whether there is one: it may stand before half a character."""
        text = self.whole()
        places = [place for string in strings if (place := text.find(string)) >= 0]
        return (text[: min(places)], True) if places else (text, False)

    def begun(self, strings: Sequence[str]) -> int:
        """How many characters at the settled end may be the beginning of one of these."""
        return max(
            (_overlap(self.settled[1 - len(string) :], string) for string in strings if len(string) > 1), default=0
        )


def _overlap(tail: str, string: str) -> int:
    """Length of the longest end of `tail` that `string` begins with."""
    place = tail.find(string[0])
    while place >= 0 and not string.startswith(tail[place:]):
        place = tail.find(string[0], place + 1)
    return 0 if place < 0 else len(tail) - place
