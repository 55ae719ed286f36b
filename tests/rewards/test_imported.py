from __future__ import annotations

import sys
from pathlib import Path

import pytest

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.imported import importable, imported, is_own

MODULES = {
    "own_good": "LIMIT = 3\nclass Outer:\n    inner = 5\n",
    "own_needs": "import a_package_that_nobody_has\n",
    "own_fails": "LIMIT = 3\n\nLIMIT / 0\n",
    "own_typo": "def broken(:\n",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name, text in MODULES.items():
        (tmp_path / f"{name}.py").write_text(text)
    return tmp_path


def test_a_name_of_a_module_is_what_the_module_has(folder: Path) -> None:
    assert is_own("own_good:LIMIT") and not is_own("pointwise") and not is_own(None)
    importable(folder)
    importable(folder)
    assert sys.path.count(str(folder)) == 1
    assert imported("own_good:LIMIT", "the limit") == 3 and imported("own_good:Outer.inner", "the limit") == 5


def test_a_module_in_that_folder_comes_before_one_of_its_name_elsewhere(folder: Path) -> None:
    inner = folder / "inner"
    inner.mkdir()
    for place in (folder, inner):
        (place / "own_twice.py").write_text(f"PLACE = {place.name!r}\n")
        importable(place)
    assert imported("own_twice:PLACE", "the place") == "inner"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "own_absent:x",
            'the limit is "own_absent:x", and there is no module own_absent: run this in its folder',
        ),
        ("own_absent.part:x", "there is no module own_absent:"),
        ("own_good:missing", "and own_good has no missing: it has LIMIT, Outer"),
        ("own_good:LIMIT.digits", "and own_good.LIMIT has no digits: it has as_integer_ratio, "),
        ("own_needs:x", "own_needs needs a_package_that_nobody_has, which is not installed: install it"),
        ("own_fails:x", r"importing own_fails ends in ZeroDivisionError: division by zero \(own_fails.py, line 3\)"),
        ("own_typo:x", r"importing own_typo ends in SyntaxError: invalid syntax \(own_typo.py, line 1\): mend it"),
        ("own_good:", 'the limit is "own_good:": write package.module:name'),
        (":x", "write package.module:name"),
        ("http://localhost:1", "write package.module:name"),
        ("../own_good:x", "write package.module:name"),
    ],
)
def test_what_cannot_be_imported_is_named_with_its_mend(folder: Path, name: str, message: str) -> None:
    importable(folder)
    with pytest.raises(AdjudgeError, match=message):
        imported(name, "the limit")


def test_a_mistake_that_a_class_of_ours_finds_in_theirs_is_told_where_theirs_is(folder: Path) -> None:
    (folder / "own_reads.py").write_text(
        "from adjudge import OwnJudge\n\nclass Wit(OwnJudge):\n    reads = ('prompt',)\n    template = 'x.jinja'\n"
    )
    importable(folder)
    with pytest.raises(AdjudgeError, match=r"importing own_reads ends in AdjudgeError: .* \(own_reads.py, line 3\)"):
        imported("own_reads:Wit", "the judge")
