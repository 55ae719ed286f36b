"""Mistakes in the options of judges are found before a model is opened."""

from __future__ import annotations

import math
from typing import Any

import pytest

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.judges.aspects import HANNA, PERSE
from adjudge.rewards.judges.kinds import named, prepare
from adjudge.rewards.judges.options import as_taken
from adjudge.rewards.records.rows import Row, renamed


@pytest.mark.parametrize(
    ("judge", "options", "message"),
    [
        ("pairwise", {"aspects": "taste"}, 'unknown aspect "taste"'),
        ("pairwise", {"max_tokens": 8}, "--max-tokens is for judges that write: add --mode reasoned"),
        ("pointwise", {"orders": "ab"}, "--orders is for --judge pairwise"),
        ("ensemble", {"language": "xx"}, 'no pairwise prompt in language "xx": choose from en'),
        ("ensemble", {"orders": "both"}, "--orders is for --judge pairwise"),
        ("ensemble", {"samples": 2}, "--samples is for judges that write: add --mode reasoned"),
        ("pointwise of pairs", {"min_mass": 2.0}, "min_mass is 2.0: give a probability from 0 to 1"),
        ("rubric", {"rubric": "six", "scheme": "fixed"}, "the criteria's points sum to 12, not to the 10"),
        ("rubric", {"rubric": "igniting", "scheme": "fixed"}, "the criteria have weights"),
        ("rubric", {"rubric": "absent.toml"}, r"cannot read absent\.toml"),
        ("rubric", {"rubric": "seven"}, '"seven": choose six, igniting, writing, or name a .toml or .json file'),
        ("rubric", {"rubric": "seven.yaml"}, r"seven\.yaml is neither \.toml nor \.json"),
        ("rubric", {"seed": 1}, "--seed is for judges that write: add --mode reasoned"),
        ("tree", {"aspects": "hanna"}, "--aspects is for --judge pairwise, pointwise, .*: leave it out"),
        ("tree", {"weights": "emotion=2"}, 'the weights of content lack "opening & ending"'),
        ("tree", {"mode": "reasoned", "attempts": 0}, "attempts is 0: give at least 1"),
        ("personal", {"without": "plots"}, '--without is "plots": what --judge personal can leave out is texts'),
        ("personal", {"aspects": "ending"}, r"--aspects is for --judge pairwise, pointwise, .*personal \(of pairs\)"),
        ("personal of pairs", {"without": "texts"}, "--without is for --judge .*personal"),
        ("personal of pairs", {"k": 6}, "k is 6: show 0 to 5 earlier reviews"),
        ("principle", {"principles": []}, "no principles: give at least one"),
        ("principle", {"principles": 3}, "principles is 3: give a file, or a list"),
        ("principle", {"examples": []}, "--examples is for --judge debate"),
        ("principle", {"language": "xx"}, 'no principles in language "xx"'),
        ("debate", {"examples": 3}, "examples is 3: give a file, or a list"),
        ("debate", {"k": 2}, "--k is how many examples a debate retrieves: leave it out, or add --examples"),
        ("debate", {"examples": [], "k": 0}, "k is 0: give at least 1"),
        ("debate", {"override": 0.4}, "override is 0.4: give a probability from 0.5 to 1"),
        ("debate", {"override": math.nan}, "override is nan"),
        ("debate", {"without": "crowd"}, 'no agent "crowd" to leave out: choose from retrieval'),
        ("debate", {"without": "judge,reflect"}, "nobody rules"),
        ("debate", {"attempts": 0}, "attempts is 0"),
        ("debate", {"samples": 3}, "--samples is for judges that write: add --mode reasoned"),
        ("debate", {"samples": 3, "mode": "direct"}, "--samples is for judges that write: add --mode reasoned"),
        ("debate", {"mode": "deep"}, "--mode is 'deep': choose direct, reasoned"),
        ("debate", {"language": "xx"}, 'no debate prompt in language "xx"'),
    ],
)
def test_a_mistake_is_found_before_a_model_is_opened(judge: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(AdjudgeError, match=message):
        prepare(judge, options)


def test_names_of_aspects_mean_those_of_readers_first_where_a_judge_goes_by_a_reader() -> None:
    assert as_taken("personal of pairs", {"aspects": "surprise"}) == {"aspects": (PERSE[2],)}
    assert PERSE[2].name == HANNA[3].name and PERSE[2] != HANNA[3]


@pytest.mark.parametrize("judge", ["rubric", "tree", "personal", "principle", "debate"])
def test_what_is_none_was_not_said(judge: str) -> None:
    assert as_taken(judge, dict.fromkeys(("rubric", "without", "weights", "principles", "examples"))) == {}


def test_rows_of_pairs_are_judged_as_such_and_one_side_of_them_as_single_texts() -> None:
    rows = [Row("line 1", {"prompt": "p", "story_a": "one", "story_b": "two"})]
    assert named("pointwise", rows) == "pointwise of pairs"
    for side in ("story_a", "story_b"):
        assert named("pointwise", renamed(rows, {"response": side}, "--columns")) == "pointwise"
    assert named("pointwise", [Row("line 1", {**rows[0].columns, "response": "three"})]) == "pointwise of pairs"
    assert named("pointwise", [Row("line 1", {"prompt": "p", "story_a": "one"})]) == "pointwise of pairs"
