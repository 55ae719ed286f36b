from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.sampling import Sampling
from adjudge.rewards.judges.principle import GOOD, PrincipleJudge, default_principles, read_principles
from adjudge.rewards.records.verdict import Item, Part
from tests.engine.reference import next_logprobs, open_reference
from tests.rewards.judges.company import assert_same_in_any_company
from tests.rewards.scripted import ScriptedEngine

TINY = "dummy:tiny-llama"
SHORT = Sampling(max_tokens=6, temperature=1.0)
ITEMS = [Item(prompt="A greeting.", response=f"Good morning {n}.", id=str(n)) for n in range(4)]
TWO = ("Be kind.", "Be brief.")


def judge_of(engine: Any, principles: Any = TWO, **how: Any) -> PrincipleJudge:
    """A judge with two short principles that lets the tiny model's faint labels count."""
    return PrincipleJudge(engine, principles, **{"min_mass": 0.0, **how})


def shown(judge: PrincipleJudge, item: Item = ITEMS[0]) -> str:
    tokenizer = judge.engine.tokenizer
    return tokenizer.decode(tokenizer.prompt(judge.ask(item)[0][0].prompt))


# ---- the score


@pytest.mark.parametrize(("language", "slot"), [("en", "Judgement: <ANSWER> "), ("zh", "判定：<ANSWER> ")])
def test_the_score_is_the_probability_of_good_that_plain_transformers_gives(
    tiny: Engine, language: str, slot: str
) -> None:
    judge = judge_of(tiny, language=language)
    [verdict] = judge.judge(ITEMS[:1])
    assert shown(judge).endswith("assistant\n" + slot)
    logprobs = next_logprobs(open_reference(TINY), tiny.tokenizer.prompt(judge.ask(ITEMS[0])[0][0].prompt))
    chances = logprobs[[tiny.tokenizer.encode(label, True)[0] for label in GOOD.labels]].exp()
    part = verdict.breakdown["judge"]
    assert part.distribution == pytest.approx((chances / chances.sum()).tolist(), abs=1e-4)
    assert part.mass == pytest.approx(float(chances.sum()), abs=1e-5)
    assert verdict.score == part.score == pytest.approx((part.distribution or (0, 0))[1], abs=1e-12)
    assert list(verdict.breakdown) == ["judge"] and (verdict.abstained, verdict.analysis) == (None, None)


def test_low_mass_abstains_and_says_how_low(tiny: Engine) -> None:
    [verdict] = judge_of(tiny, min_mass=1.0).judge(ITEMS[:1])
    assert (verdict.score, verdict.abstained, verdict.breakdown["judge"].abstained) == (None, "low_mass", "low_mass")
    assert verdict.mass is not None and 0 < verdict.mass < 1


def test_all_items_share_the_principles_and_a_group_shares_its_prompt(tiny: Engine) -> None:
    engine = Engine(TINY, kv_cache_gb=0.2)
    judge_of(engine, [f"Principle number {n} is this." for n in range(10)]).judge(ITEMS)
    assert engine.stats.sharing > 2.5
    alike = [text[: text.index("Good morning")] for text in (shown(judge_of(tiny), item) for item in ITEMS)]
    assert len(set(alike)) == 1


def test_in_the_papers_order_the_text_comes_last(tiny: Engine) -> None:
    shared, paper = shown(judge_of(tiny)), shown(judge_of(tiny, layout="paper"))
    assert shared.index("Be brief.") < shared.index("Good morning") < shared.index("All principles considered")
    assert paper.index("Be brief.") < paper.index("All principles considered") < paper.index("Good morning")


# ---- reasons on request

READABLE = {
    "as asked": "Kind and brief.\n<ANSWER> 1 </ANSWER>",
    "bare": "<ANSWER>1</ANSWER>",
    "in bold": "Fine. **<ANSWER> 1 </ANSWER>**",
}
UNREADABLE = {
    "nothing": "",
    "no judgement": "Kind and brief.",
    "two": "<ANSWER> 1 </ANSWER> or <ANSWER> 0 </ANSWER>",
    "eleven": "<ANSWER> 11 </ANSWER>",
    "five": "<ANSWER> 5 </ANSWER>",
    "in words": "<ANSWER> one </ANSWER>",
    "full width": "<ANSWER> １ </ANSWER>",
    "quoted from the text": 'It says "<ANSWER> 1 </ANSWER>", which is bold.',
    "as JSON": '{"judge": 1, "reason": "Kind."}',
}


@pytest.mark.parametrize("text", READABLE.values(), ids=READABLE.keys())
def test_a_written_judgement_is_read_at_its_own_position(tiny: Engine, text: str) -> None:
    judge = judge_of(ScriptedEngine(tiny, lambda shown, before: text), mode="reasoned", sampling=SHORT)
    [verdict] = judge.judge(ITEMS[:1])
    before = tiny.tokenizer.encode(text[: text.index("1")], False)
    [score] = tiny.score([tiny.tokenizer.prompt(judge.ask(ITEMS[0])[0][0].prompt) + before], GOOD)
    assert verdict.breakdown["judge"] == Part(score.expected, 1.0, score.probabilities, score.mass)
    assert verdict.score == score.expected and verdict.analysis == {"judge": (text,)}


@pytest.mark.parametrize("text", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_what_is_no_judgement_is_asked_again_and_then_abstains(tiny: Engine, text: str) -> None:
    engine = ScriptedEngine(tiny, lambda shown, before: text)
    [verdict] = judge_of(engine, mode="reasoned", sampling=SHORT, attempts=3).judge(ITEMS[:1])
    assert (verdict.score, verdict.abstained, len(engine.asked)) == (None, "unparsable", 3)


# ---- nothing depends on company


def test_verdicts_are_journaled_and_do_not_depend_on_order_or_windows(tiny: Engine, tmp_path: Path) -> None:
    assert_same_in_any_company(partial(judge_of, tiny), ITEMS, tiny, tmp_path / "j", asked=len(ITEMS) - 1)


def test_the_key_changes_with_everything_that_decides_the_verdict(tiny: Engine) -> None:
    def key(item: Item = ITEMS[0], principles: Any = TWO, **how: Any) -> str:
        return judge_of(tiny, principles, **how).key(item)

    keys = [
        key(),
        key(ITEMS[1]),
        key(msgspec.structs.replace(ITEMS[0], prompt="other")),
        key(principles=TWO[::-1]),
        key(principles=TWO[:1]),
        key(min_mass=0.1),
        key(cut="tail"),
        key(language="zh"),
        key(layout="paper"),
        key(mode="reasoned"),
        key(mode="reasoned", seed=1),
    ]
    assert len(set(keys)) == len(keys)
    assert key(msgspec.structs.replace(ITEMS[0], id="other")) == keys[0]


# ---- principles


@pytest.mark.parametrize("language", ["en", "zh"])
def test_ten_principles_come_with_each_language_and_are_shown_in_order(language: str) -> None:
    principles = default_principles(language)
    assert len(set(principles)) == 10
    wide = Engine("dummy:tiny-mistral", kv_cache_gb=0.2)  # a long context for many words
    judge = PrincipleJudge(wide, language=language)
    assert judge.principles == principles
    text = "".join(segment.text for segment in judge._questions(ITEMS[0])[0].prompt.segments)
    places = [text.index(f"\n{number}. {principle}\n") for number, principle in enumerate(principles, 1)]
    assert places == sorted(places)


def test_a_language_without_principles_needs_ones_own() -> None:
    with pytest.raises(AdjudgeError, match='no principles in language "xx"'):
        default_principles("xx")


FILES = {
    "p.toml": 'principles = ["Be kind.", " Be brief. "]',
    "p.json": '["Be kind.", "Be brief."]',
    "p.txt": "Be kind.\n\n  Be brief.\n",
    "numbered.txt": "1. Be kind.\n2) Be brief.\n",
    "bullets.md": "\ufeff- Be kind.\r\n* Be brief.\r\n",
}


@pytest.mark.parametrize("name", FILES)
def test_principles_are_read_from_toml_json_and_plain_lines(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(FILES[name], encoding="utf-8")
    assert read_principles(path) == TWO


def test_a_file_of_principles_may_be_named_by_a_string(tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_text("Be brief.")
    assert read_principles(str(tmp_path / "p.txt")) == ("Be brief.",)


def test_numbers_within_a_principle_stay(tmp_path: Path) -> None:
    path = tmp_path / "p.txt"
    lines = (
        "2024 is no excuse.",
        "100 words are enough.",
        "1.5 pages are enough",
        "**Voice.** One person.",
        "-5 is cold",
    )
    path.write_text("\n".join(lines))
    assert read_principles(path) == lines


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("p.toml", "principles = [", "cannot be read as principles"),
        ("p.toml", 'principle = ["Be kind."]', 'has "principle"'),
        ("p.toml", 'principles = ["a"]\nweight = 1', 'has "weight"'),
        ("p.toml", "", "no list `principles`"),
        ("p.toml", "principles = []", "no principles"),
        ("p.toml", "principles = 'Be kind.'", "holds str"),
        ("p.json", '{"principles": ["a"]}', "holds dict"),
        ("p.json", '["a", 2]', "principle 2 is int"),
        ("p.json", '["a", " "]', "principle 2 is blank"),
        ("p.json", '["a", "b", "a"]', "principle 1 comes twice"),
        ("p.json", '["a\\ue000"]', "U\\+E000"),
        ("p.json", "[" * 100_000, "nested too deeply"),
        ("p.json", "[", "cannot be read as principles"),
        ("p.txt", "\n \n", "no principles"),
        ("p.txt", "1.\n", "principle 1 is blank"),
    ],
)
def test_a_file_of_another_shape_is_one_sentence_naming_it(tmp_path: Path, name: str, text: str, reason: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(AdjudgeError, match=reason) as caught:
        read_principles(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_a_file_that_is_not_there_or_not_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(AdjudgeError, match=r"cannot read .*none\.txt"):
        read_principles(tmp_path / "none.txt")
    (tmp_path / "p.txt").write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(AdjudgeError, match="cannot be read as principles"):
        read_principles(tmp_path / "p.txt")


def test_lone_surrogates_in_principles_do_not_reach_the_journal(tmp_path: Path, tiny: Engine) -> None:
    path = tmp_path / "p.json"
    path.write_text(json.dumps(["Be \ud800 kind."]))
    assert judge_of(tiny, read_principles(path)).key(ITEMS[0])


@pytest.mark.parametrize(("principles", "reason"), [("Be kind.", "give a list of them"), ((), "no principles")])
def test_principles_given_in_code_are_checked_alike(tiny: Engine, principles: Any, reason: str) -> None:
    with pytest.raises(AdjudgeError, match=reason):
        PrincipleJudge(tiny, principles)
