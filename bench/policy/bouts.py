"""Texts of policies held against those of their base model and of people, by any judge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, Literal

import msgspec

from adjudge.bench.policy.policies import Asked
from adjudge.bench.policy.texts import Opening, Text
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.score import Reason
from adjudge.rewards.judges.judge import Judge
from adjudge.rewards.judges.kinds import Options, kind_of
from adjudge.rewards.records.rows import Row
from adjudge.rewards.records.verdict import PairVerdict, Verdict

Against = Literal["base", "human"]
Scores = dict[str, float]
"""A text's score on each aspect that was judged."""


class Match(msgspec.Struct, frozen=True):
    """A text of a policy and the text it is held against, to the prompt of the row in that `place`; without a text, its
    end. `prompt` is the first place that has the same prompt: rows may share one, with a person's text each.
    """

    policy: str
    against: Against
    place: int
    prompt: int
    sample: int
    text: str | None
    rival: str | None
    missing: Reason | None = None


class Bout(msgspec.Struct, frozen=True):
    """A match that was judged: `preference` is the probability that the policy's text is better (a judge of single
    texts says 1, 0, or ½ of equal scores), None where the judge abstained or a text is missing.

    `scores` and `overall` are of the policy's text, `rival_scores` and `rival_overall` of the other; `bias` is the
    log-odds for whichever is shown first; `keys` are the journal's.
    """

    match: Match
    preference: float | None
    abstained: Reason | None
    scores: Scores = {}
    rival_scores: Scores = {}
    overall: float | None = None
    rival_overall: float | None = None
    bias: float | None = None
    keys: tuple[str, ...] = ()


def matches_of(
    rows: Sequence[Row],
    texts: Mapping[str, Sequence[Text]],
    rivals: Sequence[Text],
    *,
    paired: int,
    prompts: Sequence[int],
) -> list[Match]:
    """Every text of every policy against the base's, and against the row's `reference` where it has one.

    Sample i meets the base's sample i + `paired`, so that all policies meet the same texts, and the base's own are met
    by others of its own; once for each prompt, however many rows have it (`prompts` are their `first_places`). Those of
    one prompt stand together: a judge computes what they share once.
    """
    against = {(rival.place, rival.sample): rival for rival in rivals}
    made: list[Match] = []
    for policy, written in texts.items():
        for text in written:
            rival = against[text.place, text.sample + paired]
            missing = next((_missing(one) for one in (text, rival) if one.text is None), None)
            prompt = prompts[text.place]
            if prompt == text.place:
                made.append(Match(policy, "base", text.place, prompt, text.sample, text.text, rival.text, missing))
            human = rows[text.place].optional_text("reference", "a comparison with people's texts")
            if human is not None:
                gone = _missing(text) if text.text is None else None
                made.append(Match(policy, "human", text.place, prompt, text.sample, text.text, human, gone))
    return sorted(made, key=lambda match: (match.place, match.against, match.sample))


def first_places(openings: Sequence[Opening], asked: Asked) -> list[int]:
    """Of each the first place in which the same is asked: the prompt, its turns, what the system says before it."""
    said = [(opening.prompt, opening.turns, asked.system_of(opening.system)) for opening in openings]
    first = {prompt: place for place, prompt in reversed(list(enumerate(said)))}
    return [first[prompt] for prompt in said]


def repeated_places(
    rows: Sequence[Row], openings: Sequence[Opening], asked: Asked, kind: str, options: Options
) -> set[int]:
    """The places of rows that ask what an earlier one does, have its reference, and show a judge of that kind the same.

    Rows of one prompt that differ in any of these stay.
    """
    known: dict[int, list[Any]] = {}
    repeated = set()
    for place, (row, first) in enumerate(zip(rows, first_places(openings, asked), strict=True)):
        shown = msgspec.structs.replace(subject_of(kind, row, place, options, ""), id="")
        about = (row.columns.get("reference") or None, shown)
        if about in known.setdefault(first, []):
            repeated.add(place)
        known[first].append(about)
    return repeated


class Referee:
    """Judges matches; `kind` is the judge's name, which says how it reads a row. Nothing is judged twice."""

    def __init__(self, judge: Judge[Any, Any], kind: str, rows: Sequence[Row], options: Options) -> None:
        self.judge, self.kind, self.rows, self.options = judge, kind, rows, options

    def bouts(self, matches: Sequence[Match]) -> Iterator[tuple[Bout, Any]]:
        """A bout for each match, in order, with the pair's verdict, or both of its texts' (None: nothing judged)."""
        judged = [match for match in matches if match.missing is None]
        of_pairs = kind_of(self.kind).what == "pairs"
        verdicts: Iterator[Any] = self._pairs(judged) if of_pairs else self._singles(judged)
        for match in matches:
            if match.missing is not None:
                yield Bout(match, None, match.missing), None
            else:
                verdict = next(verdicts)
                yield (_of_pair(match, verdict) if of_pairs else _of_two(match, *verdict)), verdict
        next(verdicts, None)  # let the engine's call come to its end

    def _pairs(self, matches: Sequence[Match]) -> Iterator[PairVerdict]:
        return iter(self.judge.judge_iter([self._subject(m.place, m.text or "", m.rival or "") for m in matches]))

    def _singles(self, matches: Sequence[Match]) -> Iterator[tuple[Verdict, Verdict]]:
        """Both verdicts of each match; a text that several matches share is judged once."""
        wanted = [(match.place, text or "") for match in matches for text in (match.text, match.rival)]
        subjects = {wish: self._subject(*wish) for wish in dict.fromkeys(wanted)}
        coming = iter(zip(subjects, self.judge.judge_iter(list(subjects.values())), strict=True))
        known: dict[tuple[int, str], Verdict] = {}

        def verdict(wish: tuple[int, str]) -> Verdict:
            while wish not in known:
                place, found = next(coming)
                known[place] = found
            return known[wish]

        for match in matches:
            yield verdict((match.place, match.text or "")), verdict((match.place, match.rival or ""))
        next(coming, None)

    def _subject(self, place: int, text: str, rival: str = "") -> Any:
        return subject_of(self.kind, self.rows[place], place, self.options, text, rival)


def subject_of(kind: str, row: Row, place: int, options: Options, text: str, rival: str = "") -> Any:
    """What a judge is shown: the row with these texts; raises AdjudgeError for a row that lacks what it reads."""
    texts = {"story_a": text, "story_b": rival} if kind_of(kind).what == "pairs" else {"response": text}
    subject = kind_of(kind).subject(Row(row.place, {**row.columns, **texts}), place + 1)
    if kind == "rubric" and "rubric" not in options and subject.rubric is None:
        raise AdjudgeError(f'{row.place}: "rubric" is missing: give each row one, or all by --rubric')
    return subject


def _missing(text: Text) -> Reason:
    ended = text.ended
    return "cancelled" if ended in ("stop", "length") else ended  # type: ignore[return-value]


def _of_pair(match: Match, verdict: PairVerdict) -> Bout:
    """Its `overall` is the mean over all aspects (EvolvR's average score), of a verdict that has them all."""
    aspects = verdict.aspects.items()
    scores = {name: one.score_a for name, one in aspects if one.score_a is not None}
    rivals = {name: one.score_b for name, one in aspects if one.score_b is not None}
    mean, rival_mean = (fmean(side.values()) if len(side) == len(aspects) > 0 else None for side in (scores, rivals))
    told = (verdict.preference, verdict.abstained, scores, rivals)
    return Bout(match, *told, mean, rival_mean, verdict.bias, (verdict.key,))


def _of_two(match: Match, own: Verdict, rival: Verdict) -> Bout:
    preference = None
    if own.score is not None and rival.score is not None:
        preference = 0.5 if own.score == rival.score else float(own.score > rival.score)
    told = (preference, own.abstained or rival.abstained, _scores(own), _scores(rival))
    return Bout(match, *told, own.score, rival.score, None, (own.key, rival.key))


def _scores(verdict: Verdict) -> Scores:
    return {name: part.score for name, part in verdict.breakdown.items() if part.score is not None}
