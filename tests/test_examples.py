from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_ten_lines_of_the_readme_are_the_example_and_run(smollm2: str, tmp_path: Path) -> None:
    script = ROOT / "examples" / "compare.py"
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert script.read_text().endswith(f'"""\n\n{blocks[0]}')
    written = tmp_path / "readme.py"
    written.write_text("".join(blocks) + "print(len(texts), len(scores))\n")
    result = subprocess.run([sys.executable, written], cwd=tmp_path, capture_output=True, text=True, check=True)
    first, *aspects, last, grade, samples = result.stdout.splitlines()
    assert samples == "4 4"
    assert re.fullmatch(r"0\.\d\d of 1 {'scene': \d\.\d, 'end': \d\.\d}", grade)
    assert re.fullmatch(r"a is better with probability 0\.\d{3}", first)
    assert len(aspects) == 6 and aspects[0].startswith("relevance  a ")
    asked, computed = map(int, re.findall(r"\d+", last))
    assert asked > 2 * computed
