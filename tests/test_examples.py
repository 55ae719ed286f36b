from __future__ import annotations

import re
import runpy
from collections import Counter
from pathlib import Path

import pytest

from tests.jsonl import read_lines

ROOT = Path(__file__).parents[1]


def test_the_ten_lines_of_the_readme_are_the_example_and_go_on_in_docs(
    smollm2: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = ROOT / "examples" / "compare.py"
    pages = [ROOT / name for name in ("README.md", "docs/engine.md", "docs/judges.md", "docs/training.md")]
    blocks = re.findall(r"```python\n(.*?)```", "".join(page.read_text() for page in pages), re.DOTALL)
    assert script.read_text().endswith(f'"""\n\n{blocks[0]}')
    assert (ROOT / "examples" / "homework.py").read_text().split('"""\n\n', 1)[1] in blocks
    written = tmp_path / "readme.py"
    text, shortened = re.subn(r"max_tokens=\d+", "max_tokens=4", "".join(blocks))
    opens = 'writer = Engine("smollm2-135m")\n'
    first, *again = text.split(opens)
    assert shortened == 3 and len(again) == 2
    text = "".join([first, opens, *again])  # two pages open it, and here they are one program
    written.write_text(f"{text}print(len(texts), len(scores))\n")
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(written))
    first, *aspects, last, called, capital, grade, own, judge, novel, samples = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"Paris 0\.\d{3}, mass 0\.\d\d", capital)
    assert re.fullmatch(r"{'right': 0\.\d+, 'shown': 0\.\d+} judge", judge)
    assert samples == "4 4" and re.fullmatch(r"\[(None|\d\.\d+), (None|\d\.\d+)\]", own)
    assert novel == "(0.5, 0.3333333333333333, None) {'own': (2.0, 1.0, 0.0)} (None, None, 'unsupported')"
    assert re.fullmatch(r"\[0\.\d+, 0\.\d+\]", called)
    assert re.fullmatch(r"0\.\d\d of 1 {'scene': \d\.\d, 'end': \d\.\d}", grade)
    assert re.fullmatch(r"a is better with probability 0\.\d{3}", first)
    assert len(aspects) == 6 and aspects[0].startswith("relevance  a ")
    asked, computed = map(int, re.findall(r"\d+", last))
    assert asked > 2 * computed


def test_unseen_pairs_share_no_prompt_with_the_others_and_length_says_nothing() -> None:
    unseen, known = (read_lines(ROOT / "examples" / name) for name in ("pairs-unseen.jsonl", "pairs.jsonl"))
    assert len(unseen) == len({row["id"] for row in unseen}) == len({row["prompt"] for row in unseen}) == 40
    assert not {row["prompt"] for row in unseen} & {row["prompt"] for row in known}
    assert Counter(row["expected"] for row in unseen) == {"a": 20, "b": 20}
    lengths = [
        (len(row[f"story_{row['expected']}"]), len(row[f"story_{'ab'[row['expected'] == 'a']}"])) for row in unseen
    ]
    assert sum(better > worse for better, worse in lengths) == 20
    means = [sum(column) / 40 for column in zip(*lengths, strict=True)]
    assert abs(means[0] / means[1] - 1) < 0.03 and len({row["kind"] for row in unseen}) >= 8


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_between_pages_lead_to_a_file_and_a_heading_that_there_are() -> None:
    folders = (".", "docs", "examples", "examples/house", "engine/house", "bench/results")
    pages = [page for folder in folders for page in (ROOT / folder).glob("*.md")]
    links = [
        (page.parent / file if file else page, heading)
        for page in pages
        for file, heading in re.findall(r"\]\((?!http)([^)#]*)#?([^)]*)\)", page.read_text())
    ]
    assert len(links) > 8 and not [target for target, _ in links if not target.exists()]
    assert not [(target, heading) for target, heading in links if heading and heading not in anchors(target)]
