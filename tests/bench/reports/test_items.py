from __future__ import annotations

from io import StringIO

from rich.console import Console

from adjudge.bench.reports.items import ItemRow, item_lines, item_table, summarise_items
from adjudge.bench.reports.run_cost import RunCost
from adjudge.rewards.records.verdict import Item, Part, Verdict

NAMES = ("relevance", "coherence", "\x1b[2Jwit")


def verdict(name: str, *scores: float | None) -> Verdict:
    parts = {
        part: Part(score, 1.0, None, None if score is None else 0.5, "unparsable" if score is None else None)
        for part, score in zip(NAMES, scores, strict=False)
    }
    known = [score for score in scores if score is not None]
    whole = sum(known) / len(known) if len(known) == len(scores) else None
    return Verdict(name, whole, parts, None if whole else "unparsable", name == "cut", "m", "k")


VERDICTS = [verdict("one", 1.0, 2.0, 3.0), verdict("cut", 4.0, 5.0, 3.0), verdict("\u202ebad", 2.0, None, 1.0)]


def shown(width: int, *verdicts: Verdict) -> str:
    console = Console(width=width, record=True, file=StringIO())
    console.print(item_table(verdicts or VERDICTS, width=width))
    return console.export_text()


def test_a_wide_table_has_every_parts_score_and_hides_nothing() -> None:
    text = shown(120)
    one, cut, bad = (next(line.split() for line in text.splitlines() if name in line) for name in ("one", "cut", "bad"))
    assert one == ["one", "2.00", "1.0", "2.0", "3.0", "0.500"]
    assert cut == ["cut", "4.00", "4.0", "5.0", "3.0", "0.500"]
    assert bad == ["⟨U+202E⟩bad", "abstained:", "2.0", "–", "1.0", "0.500"] and "unparsable" in text
    assert "\x1b" not in text and "\u202e" not in text


def test_a_narrow_table_keeps_the_score() -> None:
    text = shown(40)
    assert "4.00" in text and "5.0" not in text and max(map(len, text.splitlines())) <= 40


def test_the_lines_count_scores_abstentions_and_work() -> None:
    rows = [ItemRow(Item("p", "story"), verdict) for verdict in VERDICTS]
    assert item_lines(summarise_items(rows, RunCost("m", 2.0, 100, 250, remembered=1))) == [
        "m: 3 items",
        "mean score 3.00, standard deviation 1.41",
        "abstained on 1 of 3: 1 unparsable",
        "texts shortened in 1 of 3",
        "length: whether length matters cannot be told: too few verdicts, or all alike",
        "computed 100 of 250 tokens asked for (1 in 2.5)",
        "2.0 s, 1.00 items/s, 1 item remembered",
    ]
    assert item_lines(summarise_items(rows[2:], RunCost("m", 0.0, 0, 0)))[1] == "no item has a score"


def test_a_score_that_rounds_to_nothing_has_no_minus() -> None:
    least = verdict("least", -0.001)
    assert shown(120, least).splitlines()[-2].split() == ["least", "0.00", "0.0", "0.500"]
    assert item_lines(summarise_items([ItemRow(Item("p", "s"), least)], RunCost("m")))[1] == "mean score 0.00"
