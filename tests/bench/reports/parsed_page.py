"""A report as a browser reads it, and a text that would like to be more than text there."""

from __future__ import annotations

from collections.abc import Callable
from html.parser import HTMLParser
from typing import TypeVar

import pytest

from adjudge.bench.reports import page

Row = TypeVar("Row")

HOSTILE = (
    "A lull.</bdi></div></details></article><script>alert(1)</script><style>*{display:none}</style>"
    "\u202eesrever\u2066\x00\x1b[2J \u200b\u200b\u200b \ufeff \u2028 \ud800 \U000e0041 \u3164\ufe00 \x85 "
    '<img src="https://example.org/x.png" onerror=alert(2)> {{ 7 * 7 }} &amp; שלום'
)


class Page(HTMLParser):
    """A page's tags with their attributes, and the text of its stories."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.source = source
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.stories: list[str] = []
        self._inside = False
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        self.tags.append((tag, attributes))
        if attributes.get("class") == "text":
            self.stories.append("")
            self._inside = True

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside and tag != "div"

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.stories[-1] += data

    def all(self, tag: str, kind: str | None = None) -> list[dict[str, str]]:
        return [found for name, found in self.tags if name == tag and kind in (None, *found.get("class", "").split())]


def check_first_rows(rendered: Callable[[list[Row]], Page], rows: list[Row], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of five rows the first three are drawn, nothing leads to the others, and the page says that there are two."""
    monkeypatch.setattr(page, "DRAWN", 3)
    found, whole = rendered(rows), rendered(rows[:3])
    drawn = {f"#{article['id']}" for article in found.all("article")}
    assert len(drawn) == len(whole.all("article")) == 3
    assert {link["href"] for link in found.all("a")} <= drawn
    assert "The first 3 are shown one by one, the output has the 2 others." in found.source
    assert "are shown one by one" not in whole.source
