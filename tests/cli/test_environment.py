"""What a command tells its libraries: to report nothing, and not to wait awake for long."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

COMMAND = """
import sys
from adjudge.cli import main

sys.argv = ["adjudge", "--version"]
try:
    main()
except SystemExit:
    from huggingface_hub import constants
    print(constants.HF_HUB_DISABLE_TELEMETRY)
"""


@pytest.mark.parametrize(("chosen", "silent"), [({}, "True"), ({"HF_HUB_DISABLE_TELEMETRY": "0"}, "False")])
def test_trainers_report_their_use_only_where_that_is_chosen(chosen: dict[str, str], silent: str) -> None:
    environment = {name: value for name, value in os.environ.items() if "TELEMETRY" not in name} | chosen
    environment.pop("DO_NOT_TRACK", None)
    command = [sys.executable, "-c", COMMAND]
    found = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert found.stdout.splitlines()[-1] == silent


@pytest.mark.parametrize(
    ("chosen", "told"),
    [({}, "5000"), ({"GOMP_SPINCOUNT": "77"}, "77"), ({"OMP_WAIT_POLICY": "passive"}, "0")],
)
def test_threads_of_torch_wait_awake_for_a_moment_or_as_is_chosen(chosen: dict[str, str], told: str) -> None:
    choices = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
    environment = {name: value for name, value in os.environ.items() if name not in choices} | chosen
    command = COMMAND.replace("from huggingface_hub import constants\n", "import torch\n").partition("    print")[0]
    found = subprocess.run(
        [sys.executable, "-c", command],
        capture_output=True,
        text=True,
        env=environment | {"OMP_DISPLAY_ENV": "verbose"},
        check=True,
    )
    if "GOMP_SPINCOUNT" not in found.stderr:
        pytest.skip("torch runs on another OpenMP than GNU's")
    assert f"GOMP_SPINCOUNT = '{told}'" in found.stderr
