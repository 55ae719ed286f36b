from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.sampling import Sampling
from adjudge.engine.text.tokenizer import well_formed
from adjudge.rewards.judges.aspects import Aspect
from adjudge.training.attrition import Count
from adjudge.training.chosen import chosen
from adjudge.training.evolve.personas import PERSONAS
from adjudge.training.evolve.rationale import Rationale, read_rationales
from adjudge.training.evolve.seeds import Rated, sample_questions
from adjudge.training.evolve.synthesis import synthesize
from adjudge.training.stages import Texts
from tests.jsonl import write_lines
from tests.rewards.scripted import ScriptedEngine
from tests.training.evolve.known_engine import HOSTILE, KnownEngine, line, rationale

WIT = Aspect("wit", "Is it funny?")
STORIES = [Rated("x", "p", "Xylophones.", {"wit": (2,)}), Rated("y", "p", "Yaks.", {"wit": (5,)})]
SAMPLING = Sampling(max_tokens=64, temperature=1.0)


def questions(pointwise: bool = False) -> list[Rationale]:
    return sample_questions(STORIES, [WIT], each=2, pointwise=pointwise)[0]


def test_each_persona_writes_about_each_order_told_the_scores(tiny: Engine) -> None:
    def script(shown: str, before: int) -> str:
        first = shown.index("Xylophones") < shown.index("Yaks")
        assert f"Story 1 {2 if first else 5} of 5, Story 2 {5 if first else 2} of 5" in shown
        voice = next(name for name, voice in PERSONAS.items() if voice in shown)
        return f"{voice} reads. {line(2, 5) if first else line(5, 2)}"

    engine = ScriptedEngine(tiny, script)
    made = synthesize(questions(), Texts(engine, SAMPLING))
    assert [(one.id, one.response) for one in made.kept] == [
        (f"wit/{order}/{persona}", f"{persona} reads. {line(*scores)}")
        for order, scores in (("x:2-y:5", (2, 5)), ("y:5-x:2", (5, 2)))
        for persona in ("academic", "artist", "pragmatist", "sharp-tongued reader", "casual netizen")
    ]
    assert made.dropped == [] and len(engine.asked) == 10


def test_single_stories_end_in_one_score(tiny: Engine) -> None:
    engine = ScriptedEngine(tiny, lambda shown, before: line(2) if "Xylo" in shown else line(5, 2))
    made = synthesize(questions(pointwise=True), Texts(engine, SAMPLING), ["artist"])
    assert [one.response for one in made.kept] == [line(2)]
    assert [(drop.row.id, drop.reason) for drop in made.dropped] == [("wit/y:5/artist", "unparsable")]
    assert len(engine.asked) == 4  # the second, three times


def test_unusable_texts_are_written_again_then_dropped_and_wrong_scores_are_left_to_the_rule(tiny: Engine) -> None:
    def script(shown: str, before: int) -> str:
        if PERSONAS["artist"] in shown:
            return ["No scores.", line(2, 5, 1), f"Late. {line(1, 1)}"][before]
        return "Never any."

    engine = ScriptedEngine(tiny, script)
    made = synthesize(questions()[:1], Texts(engine, SAMPLING), ["academic", "artist"])
    assert [one.response for one in made.kept] == [f"Late. {line(1, 1)}"]
    assert Count.of(made) == Count("synthesize", 2, 1, {"unparsable": 1}) and len(engine.asked) == 6


def test_examples_of_the_same_aspect_are_shown_and_hostile_texts_stay_data(tiny: Engine, tmp_path: Path) -> None:
    def powers(text: str) -> list[list[int]]:
        told = f"same: {text} {line(2, 4)}"
        joke = rationale("same", aspect="wit", definition="?", story_a=f"{text}!", response=told)
        path = write_lines(tmp_path / "examples.jsonl", rationale("other"), joke)
        engine = KnownEngine(tiny, lambda shown, before: line(2, 5), lambda shown: "")
        told = well_formed(text)
        asked = [msgspec.structs.replace(one, story=told, prompt=told) for one in questions()[0].stories]
        question = msgspec.structs.replace(questions()[0], stories=tuple(asked))
        synthesize([question], Texts(engine, SAMPLING), ["artist"], examples=read_rationales(path), shots=1)
        [shown] = engine.asked
        assert "same: " in shown and "other: one drifts" not in shown
        return engine.powers

    assert powers(HOSTILE) == powers("x") and len(powers("x")) == 1


def test_personas_are_chosen_by_name() -> None:
    assert chosen(None, PERSONAS, "persona") == tuple(PERSONAS)
    assert chosen("Artist, casual netizen", PERSONAS, "persona") == ("artist", "casual netizen")
    for text, reason in (("bard", 'no persona is called "bard"'), (",", "no persona is named")):
        with pytest.raises(AdjudgeError, match=f"{reason}: choose academic"):
            chosen(text, PERSONAS, "persona")


def test_no_example_is_about_the_stories_that_are_asked_about(tiny: Engine) -> None:
    own = questions()
    told = [msgspec.structs.replace(one, response=line(*one.scores)) for one in own]
    engine = KnownEngine(tiny, lambda shown, before: line(2, 5), lambda shown: "")
    synthesize(own, Texts(engine, SAMPLING), ["artist"], examples=told, shots=2)
    assert all(shown.count("Xylophones.") == 1 for shown in engine.asked) and len(engine.asked) == 2
    first, *others = told[0].stories
    beside = [msgspec.structs.replace(one, story="Yachts.", prompt="y") for one in others]
    half = msgspec.structs.replace(told[0], stories=(first, *beside))
    engine = KnownEngine(tiny, lambda shown, before: line(2, 5), lambda shown: "")
    synthesize(own[:1], Texts(engine, SAMPLING), ["artist"], examples=[half], shots=2)
    assert not any("Yachts." in shown for shown in engine.asked)
