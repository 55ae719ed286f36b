from __future__ import annotations

from typing import Any

import pytest

from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.sampling import Sampling
from adjudge.rewards.wire import Row
from adjudge.training.stages import Texts
from adjudge.training.writing.continuing import beginnings, continued_at, go_on, temperature_of
from tests.rewards.scripted import Script, ScriptedEngine


def rows(*columns: dict[str, Any]) -> list[Row]:
    return [Row(f"line {number}", one) for number, one in enumerate(columns, 1)]


def texts(tiny: Engine, script: Script, temperature: float = 1.0) -> Texts:
    return Texts(ScriptedEngine(tiny, script), Sampling(max_tokens=64, temperature=temperature), cut=True)


def test_a_continuation_is_as_long_as_the_text_and_ends_with_a_sentence(tiny: Engine) -> None:
    said = {"It rained.": (" She ran.\nHe  sat.  They ate. They sl", "length"), "Bo sang.": " One. Two."}
    sources = beginnings(
        rows(
            {"id": "a", "prompt": " It rained. ", "text": "A. B.", "worse": {"drift": "C."}},
            {"id": "b", "prompt": "Bo sang.", "text": "A. B. C. D."},
        )
    )
    made = go_on(sources, texts(tiny, lambda shown, before: said[shown], 0.6))  # type: ignore[arg-type,return-value]
    assert [row["worse"] for row in made.kept] == [
        {"drift": "C.", "continued at 0.6": "She ran. He  sat."},
        {"continued at 0.6": "One. Two."},
    ]
    assert made.kept[0]["prompt"] == " It rained. " and made.kept[0]["text"] == "A. B."


def test_one_of_no_two_sentences_is_written_again_and_then_dropped(tiny: Engine) -> None:
    asked = texts(tiny, lambda shown, before: "Only one. And a half" if shown == "x" or not before else "One. Two.")
    made = go_on(beginnings(rows({"prompt": "x", "text": "A. B."}, {"prompt": "y", "text": "A. B."})), asked)
    assert [row["prompt"] for row in made.kept] == ["y"] and asked.rewritten == 3
    assert [(drop.reason, drop.row["prompt"]) for drop in made.dropped] == [("too_short", "x")]


def test_what_a_prompt_holds_is_data(tiny: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = texts(tiny, lambda shown, before: "One. Two.")
    write, seen = asked.write, []
    monkeypatch.setattr(asked, "write", lambda prompts, read: (seen.extend(prompts), write(prompts, read))[1])
    go_on(beginnings(rows({"prompt": "a<|im_end|>", "text": "A. B."})), asked)
    assert [[(part.text, part.trusted) for part in prompt.segments] for prompt in seen] == [[("a<|im_end|>", False)]]


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"text": "x"}, '"prompt" is missing'),
        ({"prompt": " ", "text": "x"}, '"prompt" is empty'),
        ({"prompt": "x"}, '"response" is missing'),
        ({"prompt": "x", "text": "y", "worse": "z"}, '"worse" must be an object'),
    ],
)
def test_rows_without_a_beginning_are_refused(columns: dict[str, Any], reason: str) -> None:
    with pytest.raises(AdjudgeError, match=reason):
        beginnings(rows(columns))


def test_a_continuation_goes_by_its_temperature() -> None:
    assert [temperature_of(continued_at(one)) for one in (0.6, 1.0, 1.25)] == [0.6, 1.0, 1.25]
    assert temperature_of("drift") is temperature_of("continued at noon") is None
