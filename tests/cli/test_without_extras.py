"""An installation of adjudge alone: what it does without any extra, and what it says where one is wanted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.cli.driving import SHORT, TINY, write_pairs
from tests.jsonl import read_lines, write_lines

# Not httpx2, which comes with the hub's client.
ALONE = """
import contextlib, io, json, sys

for name in ("datasets", "faiss", "flash_attn", "liger_kernel", "litestar", "matplotlib", "openai", "peft",
             "prometheus_client", "pyarrow", "ray", "tenacity", "triton", "trl", "uvicorn"):
    sys.modules[name] = None  # as if it were not installed

from adjudge.cli import main

for command in json.loads(sys.argv[1]):
    sys.argv = ["adjudge", *command]
    out = io.TextIOWrapper(io.BytesIO(), write_through=True)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()) as err:
        try:
            main()
        except SystemExit as ended:
            code = ended.code
    print(json.dumps([code, out.buffer.getvalue().decode(), err.getvalue()]))
"""

RECIPE = """
output = "out"
policy.model = "dummy:tiny-llama"
data.prompts = ["one", "two"]
reward.parts.ends = {kind = "check", ends_with = ["."]}
"""

JUDGE = ("judge", "pairs.jsonl", "-o", "w.jsonl", "--aspects", "coherence")

NEEDS_NONE = [
    ("judge", "pairs.jsonl", "-o", "v.jsonl", "--report", "r.html", *SHORT),
    ("replay", "v.jsonl", "-o", "again.jsonl"),
    ("rank", "groups.jsonl", *SHORT),
    ("score", "--prompt", "Score: ", "--labels", "1,2,10", *TINY),
]
NEEDS = {
    (*JUDGE, *TINY, "--adapter", "lora"): "'adjudge[train]'",
    ("train", "grpo", "recipe.toml"): "'adjudge[train]'",
    ("serve", *TINY, "--port", "0"): "'adjudge[serve]'",
    (*JUDGE, "--url", "http://127.0.0.1:9"): "'adjudge[remote]'",
    (*JUDGE, *TINY, "--replicas", "2"): "'adjudge[cluster]'",
    ("train", "curves", "out"): "'adjudge[report]'",
    ("evolve", "filter", "pairs.jsonl", "-o", "w.jsonl", "--plot", "p.png", *TINY): "'adjudge[report]'",
    ("bench", "compile"): "triton",
    ("judge", "pairs.parquet", "-o", "w.jsonl", *TINY): "pyarrow",
}


def test_without_extras_one_judges_replays_ranks_and_scores_and_is_told_which_extra_the_rest_needs(
    tmp_path: Path,
) -> None:
    write_pairs(tmp_path / "pairs.jsonl", 2)
    write_lines(tmp_path / "groups.jsonl", {"prompt": "Tell one.", "responses": ["A story.", "Another."]})
    (tmp_path / "pairs.parquet").write_bytes(b"PAR1")
    (tmp_path / "lora").mkdir()
    (tmp_path / "lora/adapter_config.json").write_text("{}")
    (tmp_path / "recipe.toml").write_text(RECIPE)
    process = [sys.executable, "-c", ALONE, json.dumps([*NEEDS_NONE, *NEEDS])]
    ran = subprocess.run(process, cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    codes, printed, told = zip(*map(json.loads, ran.stdout.splitlines()), strict=True)

    done = len(NEEDS_NONE)
    assert codes[:done] == (0,) * done, told
    assert len(read_lines(tmp_path / "v.jsonl")) == 2
    assert (tmp_path / "again.jsonl").read_bytes() == (tmp_path / "v.jsonl").read_bytes()
    assert len(read_lines(tmp_path / "groups.ranks.jsonl")) == 1 and json.loads(printed[done - 1])["mass"] > 0

    for command, code, sentence in zip(NEEDS, codes[done:], told[done:], strict=True):
        assert code == 2 and sentence.startswith("adjudge: ") and sentence.count("\n") == 1, (command, sentence)
        assert f"pip install {NEEDS[command]}" in sentence, (command, sentence)
    assert not (tmp_path / "w.jsonl").exists() and not (tmp_path / "out").exists()
