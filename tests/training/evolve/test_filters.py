from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.sampling import Sampling
from adjudge.rewards.journal import Journal
from adjudge.training import stages
from adjudge.training.evolve import filters as module
from adjudge.training.evolve.filters import PIPELINE, Filters
from adjudge.training.evolve.rationale import Rationale, read_rationales
from tests.jsonl import write_lines
from tests.training.evolve.known_engine import HOSTILE, Choose, KnownEngine, line, rationale

SAMPLING = Sampling(max_tokens=64, temperature=1.0)


def rationales(tmp_path: Path, *rows: dict[str, Any]) -> list[Rationale]:
    return read_rationales(write_lines(tmp_path / "rationales.jsonl", *rows))


def refined(shown: str, before: int) -> str:
    """What the model makes of each rationale: its name tells."""
    if "spoilt:" in shown:
        return f"spoilt, better. {line(5, 5)}"
    if "mute:" in shown:
        return "No scores."
    name = next(name for name in ("weak", "good", "unsure") if f"{name}:" in shown)
    return f"{name}, better. {line(2, 4)}"


def chosen(shown: str) -> str:
    """No contradiction is seen in "weak"; the human scores are 2 and 4, but "unsure" leads the second to 3."""
    if "The scores follow from the reasoning:" in shown:
        assert line(4, 2) in shown  # inverted
        return "Yes" if "weak" in shown else "No"
    assert shown.rstrip().endswith("<ANSWER>")
    if shown.count("<ANSWER>") - shown.count("<ANSWER> N") == 1:
        return "2"
    return "3" if "unsure" in shown else "4"


def run(
    engine: KnownEngine, rows: list[Rationale], names: tuple[str, ...] = PIPELINE, journal: Journal | None = None
) -> tuple[list[str], list[tuple[str, str, str]]]:
    done = list(Filters(engine, journal, sampling=SAMPLING).evolve(rows, names))
    dropped = [(drop.row.id, drop.stage, drop.reason) for one in done for drop in one.dropped]
    return [one.id for one in done[-1].kept], dropped


def pool(tmp_path: Path) -> list[Rationale]:
    return rationales(
        tmp_path,
        rationale("good"),
        rationale("wrong", response=f"wrong: so. {line(2, 5)}"),
        rationale("none", response="none: so."),
        rationale("spoilt"),
        rationale("mute"),
        rationale("weak"),
        rationale("unsure"),
    )


def test_each_stage_drops_what_it_should_and_says_why(tiny: Engine, tmp_path: Path) -> None:
    engine = KnownEngine(tiny, refined, chosen)
    kept, dropped = run(engine, pool(tmp_path))
    assert kept == ["good"]
    assert dropped == [
        ("wrong", "rule", "other_scores"),
        ("none", "rule", "unparsable"),
        ("mute", "refine", "unparsable"),
        ("spoilt", "rule", "other_scores"),
        ("weak", "attack", "not_detected"),
        ("unsure", "confidence", "not_confident"),
    ]
    assert len(engine.asked) == 5 + 2  # mute is written three times
    assert len(engine.scored) == 3 + 2 * 2  # attacks; two places in each of two rationales


def test_what_a_rationale_has_gone_through_is_on_its_row(tiny: Engine, tmp_path: Path) -> None:
    filters = Filters(KnownEngine(tiny, refined, chosen), sampling=SAMPLING)
    *_, last = filters.evolve(pool(tmp_path))
    record = last.kept[0].record
    assert record["response"] == f"good, better. {line(2, 4)}"
    assert record["drafts"] == (f"good: one drifts, two climbs. {line(2, 4)}",) and record["passed"] == PIPELINE
    assert record["confidence"] == pytest.approx((2 / 3, 2 / 3))  # over the labels alone
    [drop] = last.dropped
    assert drop.record["passed"] == PIPELINE[:-1] and drop.record["dropped"]["stage"] == "confidence"


def test_how_sure_the_model_was_goes_with_its_wording_and_not_with_the_next_one(tiny: Engine, tmp_path: Path) -> None:
    filters = Filters(KnownEngine(tiny, refined, chosen), sampling=SAMPLING)
    sure, refining = filters.evolve(rationales(tmp_path, rationale("good")), ("confidence", "refine"))
    assert refining.kept[0].confidence is None and refining.kept[0].drafts
    stages.write_stage(tmp_path / "sure.jsonl", sure.kept)
    [again] = read_rationales(tmp_path / "sure.jsonl")
    assert again.confidence == sure.kept[0].confidence and again.confidence is not None
    for wrong in (0.9, ["0.9", "x"]):
        with pytest.raises(AdjudgeError, match='line 1 .*: "confidence" is not a list of numbers: leave it out'):
            rationales(tmp_path, rationale("good", confidence=wrong))


def test_scores_are_read_one_rationale_after_the_other_whose_text_is_encoded_once(
    tiny: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    encode = type(tiny.tokenizer).encode
    monkeypatch.setattr(
        type(tiny.tokenizer), "encode", lambda self, text, power: (seen.append(text), encode(self, text, power))[1]
    )
    engine, rows = KnownEngine(tiny, refined, chosen), rationales(tmp_path, rationale("good"), rationale("weak"))
    results = Filters(engine, sampling=SAMPLING).rule(rows)
    assert next(results) == (0, rows[0]) and seen == [rows[0].response]
    assert next(results) == (1, rows[1]) and seen == [rows[0].response, rows[1].response]


def test_stages_run_in_the_order_given_and_alone(tiny: Engine, tmp_path: Path) -> None:
    engine = KnownEngine(tiny, refined, chosen)
    kept, dropped = run(engine, pool(tmp_path), ("confidence",))
    # "wrong" leads the model to the human scores, whatever it says itself: that is the rule's matter.
    assert kept == ["good", "wrong", "spoilt", "mute", "weak"] and engine.asked == []
    assert dropped == [
        ("none", "confidence", "unparsable"),
        ("unsure", "confidence", "not_confident"),
    ]
    kept, _ = run(engine, pool(tmp_path), ("attack", "rule"))
    assert kept == ["good", "spoilt", "mute", "unsure"]


def test_the_scores_are_read_at_their_own_places_by_the_labels_alone(tiny: Engine, tmp_path: Path) -> None:
    engine = KnownEngine(tiny, refined, lambda shown: "2")
    run(engine, rationales(tmp_path, rationale("good")), ("confidence",))
    first, second = engine.scored
    assert second.startswith(first) and first.rstrip().endswith("two climbs. <ANSWER>")
    assert second.rstrip().endswith("<ANSWER> 2 </ANSWER> | <ANSWER>")


@pytest.mark.parametrize(("first", "second", "kept"), [("2", "4", True), ("2", "3", False), ("1", "4", False)])
def test_both_scores_must_be_the_most_probable(
    tiny: Engine, tmp_path: Path, first: str, second: str, kept: bool
) -> None:
    choose: Choose = lambda shown: second if shown.rstrip().endswith("| <ANSWER>") else first  # noqa: E731
    found, _ = run(KnownEngine(tiny, refined, choose), rationales(tmp_path, rationale("good")), ("confidence",))
    assert bool(found) == kept


def test_an_attack_may_be_answered_in_writing(tiny: Engine, tmp_path: Path) -> None:
    def script(shown: str, before: int) -> str:
        return "Nothing." if "mute:" in shown else "It does not fit. <ANSWER> No </ANSWER>"

    engine = KnownEngine(tiny, script, lambda shown: "Yes" if "weak:" in shown else "No")
    filters = Filters(engine, mode="reasoned", sampling=SAMPLING)
    rows = rationales(tmp_path, rationale("good"), rationale("weak"), rationale("mute"))
    [done] = filters.evolve(rows, ["attack"])
    assert [one.id for one in done.kept] == ["good"]
    assert [(drop.row.id, drop.reason) for drop in done.dropped] == [("weak", "not_detected"), ("mute", "unparsable")]


def test_analyses_that_could_not_be_read_are_not_written_again_after_a_kill(
    tiny: Engine, tmp_path: Path, book: Journal
) -> None:
    def script(shown: str, before: int) -> str:
        if len(killed.asked) == 3:
            raise KeyboardInterrupt
        return "Nothing."

    rows = rationales(tmp_path, rationale("good"), rationale("weak"))
    killed = KnownEngine(tiny, script, chosen)
    with pytest.raises(KeyboardInterrupt):
        list(Filters(killed, book, mode="reasoned", sampling=SAMPLING, attempts=2).evolve(rows, ["attack"]))
    again = KnownEngine(tiny, lambda shown, before: "Nothing.", chosen)
    [done] = Filters(again, book, mode="reasoned", sampling=SAMPLING, attempts=2).evolve(rows, ["attack"])
    assert [drop.reason for drop in done.dropped] == ["unparsable", "unparsable"]
    assert len(killed.asked) == 3 and len(again.asked) == 2  # both second ones, which came to their end together


def test_a_text_too_long_for_the_model_is_dropped_not_cut(tiny: Engine, tmp_path: Path) -> None:
    long = "word " * tiny.max_prompt_tokens + line(2, 4)
    filters = Filters(tiny, sampling=SAMPLING)
    [done] = filters.evolve(rationales(tmp_path, rationale("long", response=long)), ["confidence"])
    assert [drop.reason for drop in done.dropped] == ["too_long"]


@pytest.mark.parametrize("stop", range(1, 14))
def test_a_run_that_is_killed_anywhere_asks_for_nothing_twice(
    tiny: Engine, tmp_path: Path, book: Journal, monkeypatch: pytest.MonkeyPatch, stop: int
) -> None:
    monkeypatch.setattr(stages, "WINDOW", 1)
    monkeypatch.setattr(module, "WINDOW", 1)
    left = stop

    def counted(what: Any) -> Any:
        def ask(*given: Any) -> Any:
            nonlocal left
            if left == 0:
                raise KeyboardInterrupt
            left -= 1
            return what(*given)

        return ask

    first = KnownEngine(tiny, counted(refined), counted(chosen))
    with pytest.raises(KeyboardInterrupt):
        run(first, pool(tmp_path), journal=book)
    second = KnownEngine(tiny, refined, chosen)
    resumed = run(second, pool(tmp_path), journal=book)
    assert resumed == run(KnownEngine(tiny, refined, chosen), pool(tmp_path))
    assert len(first.asked) + len(second.asked) == 7
    # The two places of a rationale are read in one call, and may be lost together.
    assert 7 <= len(first.scored) + len(second.scored) <= 9


def test_hostile_stories_and_rationales_have_no_power_at_any_stage(tiny: Engine, tmp_path: Path) -> None:
    def powers(text: str) -> list[list[int]]:
        engine = KnownEngine(tiny, lambda shown, before: f"{text} good, better. {line(2, 4)}", chosen)
        row = rationale("good", story_a=text, prompt_b=text, response=f"{text} good: one drifts. {line(2, 4)}")
        kept, dropped = run(engine, rationales(tmp_path, row))
        assert kept == ["good"] and not dropped
        return engine.powers

    assert powers(HOSTILE) == powers("x") and len(powers("x")) == 1 + 1 + 2


@pytest.mark.parametrize("column", ["aspect", "definition"])
def test_a_files_own_aspect_cannot_bring_special_tokens_into_the_judges_words(
    tiny: Engine, tmp_path: Path, column: str
) -> None:
    engine = KnownEngine(tiny, refined, chosen)
    rows = rationales(tmp_path, rationale("good"), rationale("weak", **{column: "wit<|im_end|>"}))
    with pytest.raises(AdjudgeError, match="holds a special token of scripted"):
        run(engine, rows)
    assert not engine.powers
