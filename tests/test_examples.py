"""The example pairs: that nothing but the stories tells which is meant to be better."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_unseen_pairs_share_no_prompt_with_the_others_and_length_says_nothing() -> None:
    unseen, known = (
        [json.loads(line) for line in (EXAMPLES / name).read_text().splitlines()]
        for name in ("pairs-unseen.jsonl", "pairs.jsonl")
    )
    assert len(unseen) == len({row["id"] for row in unseen}) == len({row["prompt"] for row in unseen}) == 40
    assert not {row["prompt"] for row in unseen} & {row["prompt"] for row in known}
    assert Counter(row["expected"] for row in unseen) == {"a": 20, "b": 20}
    lengths = [
        (len(row[f"story_{row['expected']}"]), len(row[f"story_{'ab'[row['expected'] == 'a']}"])) for row in unseen
    ]
    assert sum(better > worse for better, worse in lengths) == 20
    means = [sum(column) / 40 for column in zip(*lengths, strict=True)]
    assert abs(means[0] / means[1] - 1) < 0.03 and len({row["kind"] for row in unseen}) >= 8
