"""The stages in which a model writes, with an engine whose answers are known."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from adjudge.engine.completion import Completion
from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.sampling import Sampling
from adjudge.rewards.journal import Journal
from adjudge.rewards.records.rows import Row
from adjudge.training import stages
from adjudge.training.attrition import Count
from adjudge.training.readers.names import SCHEMA
from adjudge.training.readers.writing import anonymise, read_plots, summarise
from adjudge.training.stages import Texts
from tests.rewards.scripted import ScriptedEngine

SHORT = Sampling(max_tokens=64, temperature=1.0)

PLOTS = {
    "one": "Anna Bell waits for Ben in Lund. Annabel waits too.",
    "two": "Old Carl meets Dora at the lake.",
    "three": "Eve counts stars until Finn comes.",
    "four": "Gina sails to Hull.",
}


def listed(**names: str) -> str:
    return json.dumps([{"name": old.replace("_", " "), "new_name": new} for old, new in names.items()])


MAPS = {
    "one": [listed(Anna_Bell="Mia Frost", Anna="Mia", Ben="Leo", Lund="Vara")],
    "two": [listed(lake="sea"), listed(Carl="Dora"), listed(Carl="Otto", Dora="Ines")],
    "three": ["[]", "no names", listed(Zoe="Pia")],
    "four": [listed(Gina="Nora", Hull="Wick")],
}


def rows() -> list[Row]:
    said = [("one", "Anna is dull, Annabel is not."), ("two", "Carl!"), ("one", "I like Ben."), ("three", "")]
    said.append(("four", "x"))
    return [
        Row(f"line {n}", {"id": f"r{n}", "reviewer": "u", "plot": PLOTS[name], "review": text, "score": 5, "more": n})
        for n, (name, text) in enumerate(said, 1)
    ]


def scripted(tiny: Engine, answers: dict[str, list[str]]) -> ScriptedEngine:
    def script(shown: str, before: int) -> str:
        [name] = [name for name, plot in PLOTS.items() if plot in shown]
        return answers[name][before]

    return ScriptedEngine(tiny, script)


def test_names_go_from_plots_and_reviews_and_each_plot_is_asked_about_once(tiny: Engine, book: Journal) -> None:
    engine = scripted(tiny, MAPS)
    texts = Texts(engine, SHORT, book, schema=SCHEMA)
    made = anonymise(texts, rows())
    assert [one.columns["id"] for one in made.kept] == ["r1", "r2", "r3", "r5"]
    first, second, third, _ = (one.columns for one in made.kept)
    assert first["plot"] == third["plot"] == "Mia Frost waits for Leo in Vara. Annabel waits too."
    assert (first["review"], third["review"]) == ("Mia is dull, Annabel is not.", "I like Leo.")
    assert (second["plot"], second["review"]) == ("Old Otto meets Ines at the lake.", "Otto!")
    assert first["more"] == 1 and first["score"] == 5
    assert Count.of(made) == Count("anonymise", 5, 4, {"renames_nothing": 1})
    assert made.dropped[0].record["id"] == "r4"
    assert (texts.engine.asked, texts.rewritten) == (1 + 3 + 3 + 1, 4)


class Seeded(ScriptedEngine):
    """Writes what is known for each seed, one text after the other, until it is killed before the text `until`."""

    def __init__(self, tiny: Engine, known: dict[int, str], until: int | None = None) -> None:
        super().__init__(tiny, lambda shown, before: "")
        self.known, self.until = known, until

    def generate_iter(
        self, prompts: Any, sampling: Any = None, *, seeds: Any = None, **how: Any
    ) -> Iterator[tuple[int, Completion]]:
        for place, seed in enumerate(seeds):
            if len(self.seeds) == self.until:
                raise KeyboardInterrupt
            self.seeds.append(seed)
            text = self.known[seed]
            yield place, Completion(place, 0, text, self.tokenizer.encode(text, False), "stop", (), 1)


@pytest.mark.parametrize("until", [1, 4, 6])
def test_a_run_that_was_killed_in_the_middle_goes_on_and_asks_nothing_twice(
    tiny: Engine, book: Journal, monkeypatch: pytest.MonkeyPatch, until: int
) -> None:
    monkeypatch.setattr(stages, "WINDOW", 3)
    engine = scripted(tiny, MAPS)
    whole = anonymise(Texts(engine, SHORT, schema=SCHEMA), rows())
    counts: dict[str, int] = {}
    known = {}
    for shown, seed in zip(engine.asked, engine.seeds, strict=True):
        known[seed] = engine.script(shown, counts.get(shown, 0))
        counts[shown] = counts.get(shown, 0) + 1
    first, second = Seeded(tiny, known, until), Seeded(tiny, known)  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        anonymise(Texts(first, SHORT, book, schema=SCHEMA), rows())
    texts = Texts(second, SHORT, book, schema=SCHEMA)
    assert anonymise(texts, rows()) == whole
    assert sorted(first.seeds + second.seeds) == sorted(known) and len(first.seeds) == until
    assert texts.engine.remembered == until


def test_a_plot_that_the_model_cannot_read_whole_is_dropped(tiny: Engine) -> None:
    engine = ScriptedEngine(tiny, lambda shown, before: pytest.fail("nothing is to be asked"))
    long = Row("line 1", {"plot": "Anna waits. " * 4000})

    def too_long(prompts: Any, *rest: Any, **how: Any) -> Any:
        return tiny.generate_iter(prompts, *rest, **how)

    engine.generate_iter = too_long  # type: ignore[method-assign]
    made = anonymise(Texts(engine, SHORT, schema=SCHEMA), [long])
    assert Count.of(made).reasons == {"too_long": 1}


def test_plots_are_retold_within_their_words(tiny: Engine) -> None:
    long = "word " * 13
    answers = {
        "one": [long, " They wait in Lund. \n"],
        "two": ["Carl meets Dora."],
        "three": [long, long, long],
        "four": [PLOTS["four"], "Gina\nsails to Hull.", PLOTS["four"]],
    }
    engine = scripted(tiny, answers)
    texts = Texts(engine, SHORT)
    made = summarise(texts, rows(), 12)
    assert [(row["id"], row["plot"]) for row in made.kept] == [
        ("r1", "They wait in Lund."),
        ("r2", "Carl meets Dora."),
        ("r3", "They wait in Lund."),
    ]
    assert Count.of(made) == Count("summarise", 5, 3, {"over_length": 1, "copied": 1})
    assert texts.engine.asked == 2 + 1 + 3 + 3
    assert all("at most 12 words" in shown for shown in engine.asked)
    with pytest.raises(AdjudgeError, match="at least 10"):
        summarise(texts, rows(), 3)


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"a": "P.", "b": "Q."}, "only published plots"),
        ({"plot": " "}, '"plot" is empty'),
        ({"plot": 3}, '"plot" is 3, not a string'),
        ({"plot": "P.", "review": 3}, '"review" is 3'),
        ({"plot": "P.", "id": 1}, "is that of line 1"),
    ],
)
def test_rows_without_a_plot_are_refused_by_line(tmp_path: Path, columns: dict[str, Any], reason: str) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(json.dumps({"id": 1, "plot": "P."}) + "\n" + json.dumps(columns) + "\n")
    with pytest.raises(AdjudgeError, match=f"line 2 .*{reason}"):
        read_plots(path)
