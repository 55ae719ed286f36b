"""What a command's libraries report about its use."""

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
