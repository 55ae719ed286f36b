"""The tournament's options, apart from its judge's."""

from __future__ import annotations

from typing import Any

import msgspec

from adjudge.rewards.judges.kinds import Options
from adjudge.rewards.judges.pairing import Kind, Pairing
from adjudge.rewards.judges.tournament import PairJudge, Ranking, Tournament


class Contest(msgspec.Struct, frozen=True):
    """The options of a tournament itself; its judge has options of its own."""

    pairing: Kind = "all"
    k: int = 4
    budget: int | None = None
    ranking: Ranking = "bradley_terry"
    seed: int = 0

    @property
    def rules(self) -> Pairing:
        """Who meets whom; raises AdjudgeError for options that do not go together."""
        return Pairing(self.pairing, self.k, self.budget)

    def open(self, judge: PairJudge) -> Tournament:
        """The tournament."""
        return Tournament(judge, **msgspec.structs.asdict(self))

    def judges_options(self, options: Options) -> dict[str, Any]:
        """The options of its judge: those given, and the seed where the judge writes."""
        return {**options, "seed": self.seed} if options.get("mode", "direct") == "reasoned" else dict(options)


CONTEST = Contest.__struct_fields__


def contest_of(options: Options) -> Contest:
    """The tournament of a run, from all the run's options."""
    return Contest(**{name: options[name] for name in CONTEST if name in options})


def without_contest(options: Options) -> dict[str, Any]:
    """The rest of them, which are its judge's."""
    return {name: value for name, value in options.items() if name not in CONTEST}
