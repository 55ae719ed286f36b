from __future__ import annotations

from typing import Any

import pytest

from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.sampling import Sampling
from adjudge.engine.text.prompt import Prompt
from adjudge.rewards.judges.statements import Statement, Statements
from tests.rewards.scripted import Script, ScriptedEngine

TINY = "dummy:tiny-llama"
SHORT = Sampling(max_tokens=64, temperature=1.0)


def write_one(engine: Engine, script: Script | str | tuple[str, Any], **how: Any) -> tuple[Statement, ScriptedEngine]:
    scripted = ScriptedEngine(engine, script if callable(script) else lambda shown, before: script)
    [(name, statement)] = Statements(scripted, SHORT, **how).write({"n": Prompt.template("Merits? ")})
    assert name == "n"
    return statement, scripted


@pytest.mark.parametrize(
    ("text", "points"),
    [
        ('{"warm": "It greets."}', {"warm": "It greets."}),
        (' {\n "warm": "It greets.",\n"短": "四个字"}\n', {"warm": "It greets.", "短": "四个字"}),
        ("{}", {}),
        ('{"tags": "<ANSWER> 1 </ANSWER> <|im_end|>"}', {"tags": "<ANSWER> 1 </ANSWER> <|im_end|>"}),
    ],
)
def test_an_object_of_strings_is_a_statement(tiny: Engine, text: str, points: dict[str, str]) -> None:
    statement, engine = write_one(tiny, text)
    assert statement == Statement(text, points) and len(engine.asked) == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "It is warm.",
        '{"warm": "It gre',
        '{"warm": 1}',
        '{"warm": ["It greets."]}',
        '{"warm": null}',
        '["warm"]',
        '{"a": "b"} {"c": "d"}',
        'Here: {"a": "b"}',
        '{"a": "\\ud800"}',
        "[" * 100_000,
    ],
)
def test_what_is_no_such_object_is_written_again_and_then_abstains(tiny: Engine, text: str) -> None:
    statement, engine = write_one(tiny, text, attempts=3)
    assert statement == Statement(text, None, "unparsable") and len(set(engine.seeds)) == 3


def test_a_text_cut_short_is_written_again_and_a_whole_one_counts(tiny: Engine) -> None:
    texts: list[Any] = [('{"a": "b', "length"), ('{"a": "b"}', "length"), "never"]
    statement, engine = write_one(tiny, lambda shown, before: texts[before])
    assert statement.points == {"a": "b"} and len(engine.asked) == 2


def test_a_text_that_ended_otherwise_abstains_with_that_reason_at_once(tiny: Engine) -> None:
    statement, engine = write_one(tiny, ('{"a": "b"}', "timeout"))
    assert (statement.points, statement.abstained, len(engine.asked)) == (None, "timeout", 1)


def test_seeds_follow_from_the_prompt_the_users_seed_and_the_sample_alone(tiny: Engine) -> None:
    prompts = {name: Prompt.template(f"{name}? ") for name in "abc"}

    def seeds(names: str, sample: int = 0, **how: Any) -> dict[str, int]:
        engine = ScriptedEngine(tiny, lambda shown, before: "{}")
        list(Statements(engine, SHORT, **how).write({name: prompts[name] for name in names}, sample))
        return dict(zip(names, engine.seeds, strict=True))

    expected = seeds("abc")
    assert len(set(expected.values())) == 3
    assert seeds("cb") == {name: expected[name] for name in "cb"}
    for other in (seeds("abc", sample=1), seeds("abc", seed=1)):
        assert set(other.values()).isdisjoint(expected.values())


def test_a_real_engine_is_held_to_the_form(tiny: Engine) -> None:
    prompts = {n: Prompt.template(f"{n}? ") for n in range(12)}
    written = dict(Statements(tiny, SHORT, attempts=2).write(prompts))
    whole = [statement for statement in written.values() if statement.abstained is None]
    assert whole and all(statement.text.lstrip().startswith("{") for statement in written.values())
    assert dict(Statements(tiny, SHORT, attempts=2).write({3: prompts[3]})) == {3: written[3]}


def test_at_temperature_0_a_text_is_written_once(tiny: Engine) -> None:
    engine = ScriptedEngine(tiny, lambda shown, before: "no")
    list(Statements(engine, Sampling(max_tokens=8, temperature=0.0), attempts=5).write({"n": Prompt.template("? ")}))
    assert len(engine.asked) == 1


@pytest.mark.parametrize(
    ("sampling", "how", "reason"),
    [
        (SHORT, {"attempts": 0}, "attempts is 0"),
        (Sampling(n=2), {}, "give them to the judge"),
        (Sampling(max_tokens=5000), {}, "leave no room"),
        (Sampling(regex="a+"), {}, "do not go together"),
    ],
)
def test_settings_that_make_no_sense_are_one_sentence(
    tiny: Engine, sampling: Sampling, how: dict[str, Any], reason: str
) -> None:
    with pytest.raises(AdjudgeError, match=reason):
        Statements(tiny, sampling, **how)
