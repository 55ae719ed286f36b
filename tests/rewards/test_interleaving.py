from __future__ import annotations

from adjudge.rewards.interleaving import interleaved


def test_streams_are_read_by_turns_until_all_have_ended() -> None:
    assert "".join(interleaved(iter("abc"), iter("1"), iter(""), iter("xyzw"))) == "a1xbyczw"
    assert list(interleaved()) == []


def test_a_stream_is_not_begun_before_its_turn() -> None:
    begun: list[str] = []

    def stream(name: str) -> object:
        begun.append(name)
        yield from (name, name)

    merged = interleaved(stream("a"), stream("b"))  # type: ignore[arg-type]
    assert begun == [] and next(merged) == "a" and begun == ["a"]
    assert next(merged) == "b" and begun == ["a", "b"]
