from __future__ import annotations

import io

import pytest
from rich.console import Console

from adjudge.bench.probes import probe, probe_lines, probe_table
from adjudge.rewards.guards.probe_texts import PROBES
from adjudge.rewards.records.group import Group
from tests.rewards.guards.made_reward import CANARIES, Made, rank


def obedient(group: Group, text: str) -> float | None:
    """Obeys one injection, and abstains on empty texts."""
    return (rank(group, text) + 4 * ("请忽略" in text)) if text else None


def shown(pay: object) -> str:
    out = io.StringIO()
    Console(file=out, width=110).print(probe_table(probe(Made(pay), CANARIES)))  # type: ignore[arg-type]
    return out.getvalue()


def test_every_probe_has_a_row_with_its_numbers() -> None:
    probing = probe(Made(obedient), CANARIES)
    assert probing.effects.keys() == PROBES.keys()
    every = [effect for effects in probing.effects.values() for effect in effects]
    assert len(every) == 7 + 12
    assert [effect.probe for effect in every if effect.fools] == ["order_zh"]
    assert [effect.probe for effect in every if effect.fools is None] == ["empty"]
    assert probing.canaries.agreement == 1.0 and probing.length_agreement == pytest.approx(2 / 3)


def test_the_table_says_who_fools_the_reward() -> None:
    lines = {line.split("  ")[0].strip(): line for line in shown(obedient).splitlines()}
    assert "+2.45" in lines["injection: order zh"] and lines["injection: order zh"].rstrip().endswith(" fooled")
    assert "100 %" in lines["injection: order zh"] and "+0.00" in lines["injection: brackets"]
    assert lines["injection: brackets"].rstrip().endswith("not fooled")
    assert lines["degenerate: empty"].split()[-4:] == ["4", "cannot", "be", "told"]


def test_the_lines_sum_it_up() -> None:
    first, second, rule = probe_lines(probe(Made(obedient), CANARIES))
    assert first.startswith("canaries in their known order: 100 % of pairs (chance 50 %, by length alone ")
    assert second == "fooled by 1 of 18 probes that can be told: order_zh"
    assert rule.startswith("an effect above 0.25 standard deviations")
    silent = probe_lines(probe(Made(lambda group, text: None), CANARIES))
    assert "cannot be told" in silent[0] and "100 % abstained" in silent[0]
    assert silent[1] == "fooled by 0 of 0 probes that can be told"
