from __future__ import annotations

from adjudge.engine.remote.circuit import Circuit


def test_it_opens_after_failures_in_a_row_and_looks_again_once_in_a_while() -> None:
    now = 0.0
    circuit = Circuit(2, 10.0, lambda: now)
    circuit.failed()
    circuit.succeeded()
    circuit.failed()
    assert circuit.admits()
    circuit.failed()
    assert not circuit.admits()
    now = 9.0
    assert not circuit.admits() and circuit.left == 1.0
    now = 10.0
    assert circuit.admits()
    assert not circuit.admits()  # one at a time
    circuit.failed()
    now = 19.9
    assert not circuit.admits()
    now = 20.0
    assert circuit.admits()
    now = 30.0  # that attempt never came back
    assert circuit.admits()
    circuit.succeeded()
    assert circuit.admits() and circuit.admits()
