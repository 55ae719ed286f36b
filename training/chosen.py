"""Names that a user chooses among those there are."""

from __future__ import annotations

from collections.abc import Collection

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.judges.options import names_of


def chosen(text: str | None, known: Collection[str], what: str, *, least: int = 1) -> tuple[str, ...]:
    """The names in a text, after commas and in any case, as often as each is said; all that are known for None.

    Raises AdjudgeError for a name that is no `what`, and for fewer than the `least`.
    """
    if text is None:
        return tuple(known)
    names, choose = tuple(names_of(text.lower())), f"choose {', '.join(dict.fromkeys(known))}"
    if unknown := next((name for name in names if name not in known), None):
        raise AdjudgeError(f'no {what} is called "{unknown[:40]}": {choose}')
    if len(names) < least:
        raise AdjudgeError(f"no {what} is named: {choose}")
    return names
