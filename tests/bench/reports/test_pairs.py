from __future__ import annotations

import io
import math
import os
import re
import unicodedata
from pathlib import Path
from typing import Literal

import msgspec
import pytest
from rich.console import Console
from rich.text import Text
from scipy.stats import binomtest

from adjudge.bench.agreement.resampling import wilson
from adjudge.bench.reports.page import write_page
from adjudge.bench.reports.pair_summary import PairRow, RunSummary, agreement, by_order, summarise, worth
from adjudge.bench.reports.pairs import pair_table, render, summary_lines
from adjudge.bench.reports.run_cost import RunCost
from adjudge.bench.words import percent
from adjudge.engine.score import Reason
from adjudge.rewards.judges.aspects import HANNA
from adjudge.rewards.judges.preference import debiased, sigmoid
from adjudge.rewards.records.verdict import AspectVerdict, Pair, PairVerdict
from adjudge.rewards.visible import visible
from tests.bench.reports.parsed_page import HOSTILE, Page, check_first_rows

Expected = Literal["a", "b", "tie"] | None
LABELS = ("1", "2", "3", "4", "5")
GOOD = AspectVerdict(3.4, 2.1, 0.8, 0.3, 0.9, (0.05, 0.1, 0.35, 0.4, 0.1), (0.4, 0.3, 0.15, 0.1, 0.05))


def row(name: str = "pair", p: float | None = 0.8, expected: Expected = "a", bias: float | None = 0.3) -> PairRow:
    aspect = msgspec.structs.replace(GOOD, preference=p or 0.5, bias=bias)
    reason: Reason | None = "low_mass" if p is None else None
    verdict = PairVerdict(name, p, {each.name: aspect for each in HANNA}, reason, False, "tiny", "key")
    return PairRow(Pair(id=name, prompt="A prompt.", a="One two three.", b="Four."), verdict, expected)


def summary(rows: list[PairRow], seconds: float = 4.0, computed: int = 1000, asked: int = 5000) -> RunSummary:
    return summarise(rows, RunCost("tiny", seconds, computed, asked))


def page(rows: list[PairRow]) -> Page:
    return Page(render(rows, summary(rows), title="A title"))


def text(rows: list[PairRow], width: int) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(pair_table(rows, summary(rows), width=width))
    return console.export_text()


# Numbers and words


@pytest.mark.parametrize(("successes", "trials"), [(14, 26), (0, 7), (7, 7), (1, 1), (501, 1000)])
def test_wilson_interval_is_scipys(successes: int, trials: int) -> None:
    expected = binomtest(successes, trials).proportion_ci(method="wilson")
    assert wilson(successes, trials) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_ties_are_not_counted_and_even_or_abstained_pairs_are_undecided() -> None:
    rows = [
        row(),
        row(p=0.3),
        row(p=0.2, expected="b"),
        row(p=0.5),
        row(p=None),
        row(expected="tie"),
        row(expected=None),
    ]
    result = summary(rows)
    assert (result.agreed, result.disagreed, result.undecided, result.pairs) == (2, 1, 2, 7)
    assert result.abstained == {"low_mass": 1}


def test_a_winner_that_depends_on_the_order_is_counted() -> None:
    rows = [row(p=0.6, bias=2.0), row(p=0.9, bias=0.1), row(p=0.4, bias=-2.0), row(p=0.6, bias=None)]
    result = summary(rows)
    assert (result.turned, result.both_orders) == (2, 3)
    assert result.bias == pytest.approx(0.1 / 3)
    assert result.shift == pytest.approx(1 / (1 + math.exp(-0.1 / 3)) - 0.5)


def test_the_answer_of_each_order_is_recovered() -> None:
    better, bias = debiased(1.3, -0.4)
    assert by_order(sigmoid(better), bias) == pytest.approx((sigmoid(1.3), sigmoid(0.4)))
    assert by_order(1.0, 0.5) == pytest.approx((1.0, 1.0))
    assert by_order(sigmoid(32.0), 30.0)[1] > 0.5  # type: ignore[index]
    assert by_order(0.7, None) is None


@pytest.mark.parametrize(
    ("agreed", "line"),
    [
        (14, "14 of 26 (54 %, 95 % interval 35–71 %): cannot be told from chance"),
        (17, "17 of 26 (65 %, 95 % interval 46–81 %): cannot be told from chance"),
        (22, "22 of 26 (85 %, 95 % interval 66–94 %): better than chance"),
        (4, "4 of 26 (15 %, 95 % interval 6–34 %): worse than chance"),
    ],
)
def test_agreement_says_whether_it_can_be_told_from_chance(agreed: int, line: str) -> None:
    result = summary([row(p=0.8)] * agreed + [row(p=0.2)] * (26 - agreed))
    assert agreement(result) == f"agrees with the intended order on {line}"


def test_without_intended_orders_it_is_said_how_often_a_is_preferred() -> None:
    rows = [row(p=p, expected=None) for p in (0.75, 0.75, 0.75, 0.25, 0.5, None)]
    line = "prefers a in 3 of 4 (75 %, 95 % interval 30–95 %), with a mean preference of 0.600; no pair has an intended"
    assert agreement(summary(rows)).startswith(line)


def test_without_decisions_nothing_is_claimed() -> None:
    assert agreement(summary([row(p=0.5), row(p=None)])) == "decided none of the 2 pairs with an intended order"
    undecided = summary([row(p=0.5, expected=None), row(p=None, expected=None)])
    assert agreement(undecided).startswith("prefers neither story of any pair; no pair has an intended order")
    assert "unknown" in worth(summary([row(expected=None)]))[0]
    assert worth(summary([row(p=None)]))[0] == "gives no verdict"
    assert "should not be used as rewards" in worth(summary([row()]))[1]


def test_lines_tell_abstentions_also_when_there_are_none() -> None:
    lines = summary_lines(summary([row(), row(p=0.7, bias=-0.5)]))
    assert "abstained on 0 of 2" in lines
    assert "computed 1,000 of 5,000 tokens asked for (1 in 5.0)" in lines
    assert "4.0 s, 0.50 pairs/s" in lines
    assert any("position bias −0.10 log-odds" in line and "(−2 points" in line for line in lines)
    assert "abstained on 1 of 2: 1 low_mass" in summary_lines(summary([row(), row(p=None)]))


def test_a_run_that_computed_nothing_divides_by_nothing() -> None:
    lines = summary_lines(summary([row()], seconds=0.0, computed=0, asked=0))
    assert "computed 0 of 0 tokens asked for" in lines
    assert "0.0 s, 1 pair" in lines


def test_percentages_never_round_to_certainty() -> None:
    assert [percent(share) for share in (0.0, 0.001, 0.5, 0.999, 1.0)] == ["0 %", "<1 %", "50 %", ">99 %", "100 %"]
    assert [percent(share, 1) for share in (0.0001, 0.503, 0.99999)] == ["<0.1 %", "50.3 %", ">99.9 %"]


# The terminal


@pytest.mark.parametrize("width", [80, 120, 160])
def test_the_table_holds_every_id_and_fits(width: int) -> None:
    rows = [row("lighthouse-keeper"), row("listening-to-snow", p=None), row("the-second-mother", p=0.1)]
    lines = text(rows, width).splitlines()
    assert max(map(len, lines)) <= width
    for name, shown in [("lighthouse-keeper", ["A", "0.800", "✓"]), ("the-second-mother", ["B", "0.900", "✗"])]:
        line = next(line for line in lines if name in line)
        assert set(shown) <= set(line.split())
    assert any("listening-to-snow" in line and "abstained" in line for line in lines)
    assert any("low_mass" in line for line in lines)


def test_scores_by_aspect_where_they_fit_and_a_count_where_not() -> None:
    wide, narrow = text([row()], 120), text([row()], 80)
    assert wide.count("3.4/2.1") == 6
    assert "3.4/2.1" not in narrow
    assert "6 A, 0 B" in narrow


def test_the_higher_score_is_bold() -> None:
    (cell,) = pair_table([row()], summary([row()]), width=160).columns[3].cells
    assert isinstance(cell, Text)
    assert [cell.plain[span.start : span.end] for span in cell.spans if span.style == "bold"] == ["3.4"]


def test_without_intended_order_or_second_order_there_is_nothing_to_show() -> None:
    shown = text([row("x", expected=None, bias=None)], 160)
    assert "meant" not in shown
    assert "✓" not in shown
    assert "–" in shown


def test_an_id_cannot_move_the_terminals_cursor() -> None:
    assert "⟨U+001B⟩[2J[bold]x" in text([row("\x1b[2J[bold]x")], 160)


# The page


def filled(words: str) -> list[PairRow]:
    """Two pairs with `words` in every place that others write."""
    first = Pair(id=words, prompt=words, a=words, b=words)
    second = Pair(id=words, prompt_a=words, prompt_b=f"{words}.", a=words, b="")
    return [PairRow(pair, row().verdict, "a", words) for pair in (first, second)]


def test_hostile_texts_change_nothing_but_themselves() -> None:
    tags = [(tag, attributes.get("class")) for tag, attributes in page(filled(HOSTILE)).tags]
    named = [(tag, kind) for tag, kind in tags if tag != "i"]  # <i> names a hidden character
    assert len(tags) > len(named)
    assert named == [(tag, attributes.get("class")) for tag, attributes in page(filled("calm")).tags]


def test_hidden_characters_are_written_out() -> None:
    found = page(filled(HOSTILE))
    assert {c for c in found.source if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")} == {"\n"}
    assert "\u3164" not in found.source
    names = [
        "U+202E",
        "U+2066",
        "U+0000",
        "U+001B",
        "U+FEFF",
        "U+2028",
        "U+D800",
        "U+E0041",
        "U+3164",
        "U+FE00",
        "U+0085",
    ]
    for name in ("U+200B ×3", *names):
        assert f"<i>{name}</i>" in found.source
    assert found.stories[0].startswith("A lull.</bdi></div></details></article><script>alert(1)</script>")
    assert "{{ 7 * 7 }} &amp; שלום" in found.stories[0]


def test_ordinary_text_is_shown_as_it_is() -> None:
    story = "Zoë said: “Yes…”\n\n\tÜber 5 < 6 & 7 > 2.\u00a0日本語 ❤️ naïve"
    plain = msgspec.structs.replace(row(), pair=Pair(a=story, b=story.replace("\n", "\r\n")))
    assert page([plain]).stories == [story, story]
    assert visible(story) == story


def test_a_very_long_story_is_cut_and_says_so() -> None:
    found = page([msgspec.structs.replace(row(), pair=Pair(a="x" * 1_000_000, b=""))])
    assert len(found.source) < 60_000
    assert found.stories[0].endswith("980,000 more characters are not shown")
    assert found.stories[1] == "(empty)"


def test_the_page_needs_nothing_else() -> None:
    found = page([row("one"), row("two", p=None)])
    assert not re.search(r"https?:|url\(|@import|//[a-z]", found.source)
    assert {tag for tag, _ in found.tags}.isdisjoint({"script", "link", "img", "iframe", "object", "base", "form"})
    assert any("default-src 'none'" in meta.get("content", "") for meta in found.all("meta"))
    assert not any(name == "src" or name.startswith("on") for _, attributes in found.tags for name in attributes)
    anchors = {attributes["id"] for _, attributes in found.tags if "id" in attributes}
    assert [link["href"] for link in found.all("a")] == ["#pair-1", "#pair-2"]
    assert {"pair-1", "pair-2"} <= anchors


def test_an_abstention_is_told_in_words_and_drawn_as_nothing() -> None:
    quiet = row("quiet", p=None)
    silent = AspectVerdict(None, None, None, None, 0.004, abstained="low_mass")
    verdict = msgspec.structs.replace(quiet.verdict, aspects={"empathy": silent}, truncated=True)
    found = page([msgspec.structs.replace(quiet, verdict=verdict)])
    assert "No verdict: the model gave the labels too little of its probability (low_mass)." in found.source
    assert "too little of its probability, mass 0.004" in found.source
    assert "was shortened" in found.source
    assert not found.all("circle", "dot")
    assert not found.all("svg", "histogram")


def test_one_order_draws_no_band_and_claims_no_bias() -> None:
    found, both = page([row(bias=None)]), page([row()])
    assert not found.all("line", "orders") and len(both.all("line", "orders")) == 7
    assert "Unknown: no verdict in both orders." in found.source
    assert "pale band" not in found.source and "pale band" in both.source


def test_without_intended_order_no_pair_is_marked() -> None:
    found = page([row(expected=None)])
    assert not found.all("svg", "gauge")
    assert not found.all("li", "agrees") and not found.all("li", "disagrees") and len(found.all("li", "open")) == 1
    assert "✓" not in found.source


def test_colour_comes_with_a_word() -> None:
    found = page([row(), row(p=0.2), row(p=0.5), row(expected="tie")])
    chart = found.source.split("<h2>Position bias</h2>")[0]
    marks = re.findall(r'<li class="(\w+)">.*?<span class="mark">(.*?)\s*</span>', chart, re.DOTALL)
    words = [("agrees", "✓ agrees"), ("disagrees", "✗ disagrees"), ("open", "undecided"), ("open", "meant as a tie")]
    assert marks == words


def test_the_story_that_was_meant_is_named() -> None:
    found = page([row(expected="a"), row(expected="b"), row(expected="tie"), row(expected=None)])
    heads = re.findall(r"<summary>Story (.) <small>[^<]*, meant to be better</small>", found.source)
    assert heads == ["A", "B"]


def test_preferences_stand_where_they_belong() -> None:
    rows = [row("one", p=0.9, bias=0.0), row("two", p=0.25, bias=1.0)]
    found = page(rows)
    dots = [float(dot["cx"].rstrip("%")) for dot in found.all("circle", "dot")]
    assert dots[1] == 90.0  # after the gauge's
    assert dots[2] == 25.0
    band = found.all("line", "orders")[1]
    log_odds = math.log(0.25 / 0.75)
    assert float(band["x1"].rstrip("%")) == pytest.approx(100 / (1 + math.exp(-log_odds - 1)), abs=0.01)
    assert float(band["x2"].rstrip("%")) == pytest.approx(100 / (1 + math.exp(-log_odds + 1)), abs=0.01)


def test_faint_preferences_are_drawn_larger_and_the_scale_is_told() -> None:
    found = page([row(p=0.52, bias=0.0)])
    assert found.all("circle", "dot")[1]["cx"] == "70.00%"  # of 45 to 55 %
    assert "The scale ends at 55 %." in found.source
    assert "A 55 % →" in found.source
    assert "The scale ends" not in page([row(p=0.9)]).source
    assert "The scale ends at 75 %." in page([row(p=0.52, bias=0.9)]).source  # one order's answer needs the room


def test_biases_stand_where_they_belong() -> None:
    cloud = page([row(bias=0.5), row(bias=-1.5)]).source.split("<h2>Position bias</h2>")[1].split("</ol>")[0]
    places = re.findall(r'<circle cx="([\d.]+)%"', cloud)
    assert places == ["62.50", "12.50"] * 7  # of −2 to 2, for the pairs and six aspects
    assert re.findall(r'class="mean" x1="([\d.]+)%"', cloud) == ["37.50"] * 7


def test_histograms_show_the_distributions() -> None:
    assert GOOD.distribution_a and GOOD.distribution_b
    found = page([row()])
    bars = [re.findall(r"v-?([\d.]+)h", path["d"])[0] for path in found.all("path", "a")[:5]]
    assert [float(bar) for bar in bars] == pytest.approx([22 * p / 0.4 for p in GOOD.distribution_a], abs=0.01)
    bars = [re.findall(r"v-?([\d.]+)h", path["d"])[0] for path in found.all("path", "b")[:5]]
    assert [float(bar) for bar in bars] == pytest.approx([22 * p / 0.4 for p in GOOD.distribution_b], abs=0.01)
    means = [float(path["d"].split()[0][1:]) for path in found.all("path", "mean")[:2]]
    assert means == pytest.approx([24 * (3.4 - 0.5), 24 * (2.1 - 0.5)], abs=0.01)  # 24 units a label, "1" centred at 12


def test_no_pairs_make_a_page_too() -> None:
    assert "0 of 0" in page([]).source


def test_a_report_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.html"
    write_page(path, render([row("first")], summary([row("first")]), title="Title"))
    before = path.read_text(encoding="utf-8")
    assert "first" in before

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        write_page(path, render([row("second")], summary([row("second")]), title="Title"))
    assert path.read_text(encoding="utf-8") == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_folder_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_page(tmp_path / "none" / "report.html", render([], summary([]), title="Title"))


def test_a_report_of_26_pairs_stays_small() -> None:
    story = "word " * 300
    rows = [msgspec.structs.replace(row(f"pair-{n}"), pair=Pair(id=f"pair-{n}", a=story, b=story)) for n in range(26)]
    assert len(page(rows).source.encode()) < 600_000


def test_of_many_pairs_the_first_are_drawn_and_the_page_says_how_many_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    check_first_rows(page, [row(f"pair {place}") for place in range(5)], monkeypatch)
