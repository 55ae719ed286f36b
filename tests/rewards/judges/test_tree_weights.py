from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from adjudge.engine.engine import Engine
from adjudge.engine.text.prompt import Prompt, Segment
from adjudge.rewards.journal import Journal
from adjudge.rewards.judges.tree_weights import Weighing, Weights, interleaved, read_weights, schema
from tests.rewards.scripted import ScriptedEngine

TINY = "dummy:tiny-llama"
NAMES = ("a", "b")
GOOD, OTHER = '{"a": 0.25, "b": 0.75}', '{"a": 1.2, "b": -0.2}'


def word(instruction: str, names: Any) -> Prompt:
    return Prompt((Segment(f"Weigh {' '.join(names)} for: ", trusted=True), Segment(instruction)))


def weigh(engine: Any, *instructions: str, journal: Journal | None = None, **how: Any) -> list[Weights | None]:
    weighing = Weighing(engine, journal, word, dict, **how)
    return weigh_with(weighing, *instructions)


def weigh_with(weighing: Weighing, *instructions: str) -> list[Weights | None]:
    keys = [weighing.key(instruction, NAMES) for instruction in instructions]
    list(weighing.weigh({key: (text, NAMES) for key, text in zip(keys, instructions, strict=True)}))
    return [weighing.known(key) for key in keys]


@pytest.mark.parametrize(
    ("text", "weights"),
    [
        (GOOD, {"a": 0.25, "b": 0.75}),
        ('{"b": 1.0, "a": 0}', {"a": 0.0, "b": 1.0}),
        (' {"a": -0.5,\n"b": 1.50} ', None),  # 1.5 is above 1
        ('{"a": -0.0, "b": 1}', {"a": 0.0, "b": 1.0}),
        ('{"a": 0.33, "b": 0.66}', {"a": 1 / 3, "b": 2 / 3}),  # 0.99, within the rounding of two
        ('{"a": 0.33, "b": 0.65}', None),
        ('{"a": 0.5, "b": 0.6}', None),
        ('{"a": 0.125, "b": 0.875}', None),  # three decimals
        ('{"a": 1.0}', None),
        ('{"a": 0.5, "b": 0.5, "c": 0}', None),
        ('{"a": "0.5", "b": 0.5}', None),
        ('{"a": NaN, "b": 1}', None),
        ('{"a": 1e999, "b": 1}', None),
        ('{"a": 0.25, "b": 0.7', None),
        ("[0.25, 0.75]", None),
        ("", None),
        ("ａ", None),
        ("{" * 100_000, None),
    ],
)
def test_weights_are_read_or_there_are_none(text: str, weights: dict[str, float] | None) -> None:
    found = read_weights(text, NAMES)
    assert found == (None if weights is None else pytest.approx(weights))
    assert found is None or list(found) == ["a", "b"]


def test_negative_weights_are_allowed_down_to_minus_one() -> None:
    assert read_weights('{"a": -1, "b": 1}', NAMES, whole=False) == {"a": -1.0, "b": 1.0}
    assert read_weights('{"a": -0.2, "b": 0.6, "c": 0.6}', ("a", "b", "c")) == pytest.approx(
        {"a": -0.2, "b": 0.6, "c": 0.6}
    )
    assert read_weights('{"a": -1.01, "b": 1}', NAMES, whole=False) is None


def test_without_whole_any_sum_will_do_and_stays() -> None:
    assert read_weights('{"a": 0.1, "b": 0.1}', NAMES, whole=False) == {"a": 0.1, "b": 0.1}


def test_the_engine_follows_the_schema(tiny: Engine) -> None:
    [completion] = tiny.generate(["x"], max_tokens=400, temperature=1.0, seed=1, json_schema=schema(NAMES))
    if completion.finish_reason == "stop":
        values = json.loads(completion.text)
        assert list(values) == ["a", "b"] and all(-1 <= value <= 1 for value in values.values())
    assert completion.text.lstrip().startswith("{")


def test_each_instruction_is_asked_once(tiny: Engine) -> None:
    engine = ScriptedEngine(tiny, lambda shown, before: GOOD)
    weighing = Weighing(engine, None, word, dict)
    first = weigh_with(weighing, "one", "two")
    assert first == [Weights({"a": 0.25, "b": 0.75})] * 2 and len(engine.asked) == 2
    assert weigh_with(weighing, "two", "one", "three")[:2] == first and len(engine.asked) == 3


def test_what_cannot_be_read_is_written_again_with_another_seed_then_abstains(tiny: Engine) -> None:
    engine = ScriptedEngine(tiny, lambda shown, before: ("no", OTHER, GOOD)[before])
    assert weigh(engine, "one") == [Weights({"a": 0.25, "b": 0.75})]
    assert len(set(engine.seeds)) == 3
    assert weigh(ScriptedEngine(tiny, lambda shown, before: "no"), "one", attempts=2) == [
        Weights(abstained="unparsable")
    ]


def test_seeds_depend_on_the_instruction_and_the_seed_alone(tiny: Engine) -> None:
    def seeds(*instructions: str, seed: int = 0) -> dict[str, int]:
        engine = ScriptedEngine(tiny, lambda shown, before: GOOD)
        weigh(engine, *instructions, seed=seed)
        return dict(zip(engine.asked, engine.seeds, strict=True))

    assert seeds("one", "two") == seeds("two", "one")
    assert set(seeds("one").values()).isdisjoint(seeds("one", seed=1).values())


def test_a_resumed_run_does_not_ask_again(tiny: Engine, tmp_path: Path) -> None:
    engine = ScriptedEngine(tiny, lambda shown, before: GOOD if "one" in shown else "no")
    with Journal(tmp_path / "j") as journal:
        first = weigh(engine, "one", "two", journal=journal)
        asked = len(engine.asked)
        assert asked == 1 + 3
        assert weigh(engine, "two", "one", journal=journal) == first[::-1]
        assert len(engine.asked) == asked


def test_what_ran_out_of_time_is_asked_again_later(tiny: Engine, tmp_path: Path) -> None:
    engine = ScriptedEngine(tiny, lambda shown, before: GOOD if before else ("", "timeout"))
    with Journal(tmp_path / "j") as journal:
        weighing = Weighing(engine, journal, word, dict)
        assert weigh_with(weighing, "one") == [Weights(abstained="timeout")]
        assert len(journal) == 0
        assert weigh_with(weighing, "one") == [Weights({"a": 0.25, "b": 0.75})]


def test_an_instruction_that_does_not_fit_is_shortened_and_says_so(tiny: Engine) -> None:
    engine = ScriptedEngine(tiny, lambda shown, before: GOOD)
    assert [weights and weights.truncated for weights in weigh(engine, "word " * 5000, "one")] == [True, False]


def test_the_key_changes_with_everything_that_decides(tiny: Engine) -> None:
    def key(instruction: str = "one", names: tuple[str, ...] = NAMES, conditions: Any = dict, **how: Any) -> str:
        return Weighing(tiny, None, word, conditions, **how).key(instruction, names)

    keys = [
        key(),
        key("two"),
        key(names=("a", "c")),
        key(conditions=lambda: {"model": "other"}),
        key(whole=False),
        key(attempts=2),
        key(seed=1),
    ]
    assert len(set(keys)) == len(keys)


def test_new_conditions_make_new_keys(tiny: Engine) -> None:
    models: Iterator[str] = iter(["old", "new"])
    weighing = Weighing(tiny, None, word, lambda: {"model": next(models)})
    assert weighing.key("one", NAMES) != weighing.key("one", NAMES)


def test_streams_are_read_by_turns_until_all_have_ended() -> None:
    assert "".join(interleaved(iter("abc"), iter("1"), iter(""), iter("xyzw"))) == "a1xbyczw"
    assert list(interleaved()) == []


def test_a_stream_is_not_begun_before_its_turn() -> None:
    begun: list[str] = []

    def stream(name: str) -> object:
        begun.append(name)
        yield from (name, name)

    merged = interleaved(stream("a"), stream("b"))  # type: ignore[arg-type]
    assert begun == [] and next(merged) == "a" and begun == ["a"]
    assert next(merged) == "b" and begun == ["a", "b"]
