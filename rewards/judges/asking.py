"""Questions put to an engine: answered at once where the prompt ends, or after an analysis in writing."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any, Literal, TypeVar

import msgspec

from adjudge.engine.absent import AbsentEngine
from adjudge.engine.checking import at_least, shown
from adjudge.engine.completion import Completion
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.face import EngineFace
from adjudge.engine.models.aliases import SCORES_ONLY, reads_normalised
from adjudge.engine.sampling import Sampling
from adjudge.engine.score import UNKEPT, Score
from adjudge.engine.text.labels import Labels
from adjudge.engine.text.prompt import Prompt
from adjudge.engine.text.written_scores import AnswerFormat
from adjudge.rewards.journal import content_key

Mode = Literal["direct", "reasoned"]
Subject = TypeVar("Subject", bound=Hashable)

SAMPLING = Sampling(max_tokens=512, temperature=0.7)
"""How analyses are written unless a judge is told otherwise."""

ANSWER = AnswerFormat(
    openings=("<ANSWER>", "<Answer>", "<answer>"), closings=("</ANSWER>", "</Answer>", "</answer>"), at_end=True
)
"""A score in its tags, at the end of the text; spaces, line breaks and asterisks around it do not matter."""

LABEL_TOKENS = 16
"""Room in the context for the labels themselves."""


class Question(msgspec.Struct, frozen=True):
    """A prompt that leads to `answers` scores over `labels`; its name is its own within its subject.

    A prompt that is answered directly ends at the answer slot of its one score.
    """

    name: str
    prompt: Prompt
    labels: Labels
    answers: int = 1

    @property
    def identity(self) -> tuple[Prompt, Labels, int]:
        """What decides its answer, whatever it is called."""
        return self.prompt, self.labels, self.answers


class Answer(msgspec.Struct, frozen=True):
    """The scores of a question, in order, and the texts they were read from (None where nothing was written).

    With several analyses a score is the mean of their distributions, of those that count, and `spreads` has
    the standard deviation of their expected scores (None where fewer than two count, or labels are no numbers).
    """

    scores: tuple[Score, ...]
    analyses: tuple[str, ...] | None = None
    spreads: tuple[float | None, ...] | None = None


class Asking(ABC):
    """A way to have questions answered; `reserve` is the room, in tokens, that a prompt must leave for it.

    `mode` tells a prompt file what to ask for; `content` is what else decides an answer, for the journal; `n` how many
    answers a question's is the mean of.
    """

    mode: Mode
    reserve: int
    content: Mapping[str, Any] | None
    n: int = 1

    def ask(self, subjects: Mapping[Subject, Sequence[Question]]) -> Iterator[tuple[Subject, dict[str, Answer]]]:
        """Every subject with its answers by name, as soon as its last one is there; all are in the engine at once."""
        asked = [(subject, question) for subject, questions in subjects.items() for question in questions]
        answers: dict[Subject, dict[str, Answer]] = {subject: {} for subject in subjects}
        yield from ((subject, {}) for subject, questions in subjects.items() if not questions)
        for place, answer in self._answers([question for _, question in asked]):
            subject, question = asked[place]
            answers[subject][question.name] = answer
            if len(answers[subject]) == len(subjects[subject]):
                by_name = answers.pop(subject)
                yield subject, {question.name: by_name[question.name] for question in subjects[subject]}

    @abstractmethod
    def _answers(self, questions: Sequence[Question]) -> Iterator[tuple[int, Answer]]:
        """(place in the list, answer) as soon as each is there."""


class Direct(Asking):
    """Nothing is written: the score is the label distribution where the prompt ends."""

    mode: Mode = "direct"
    reserve = LABEL_TOKENS
    content = None

    def __init__(self, engine: EngineFace) -> None:
        self.engine = engine

    def _answers(self, questions: Sequence[Question]) -> Iterator[tuple[int, Answer]]:
        prompts, labels = [question.prompt for question in questions], [question.labels for question in questions]
        for place, score in self.engine.score_iter(prompts, labels):
            yield place, Answer((score,))


class Reasoned(Asking):
    """The model writes its analysis and then its scores; each is read from the distribution at its own place.

    A later score is conditioned on those before it as they were written. A text that does not hold its scores as `form`
    wants them is written again with another seed, `attempts` times in all (at temperature 0, where it would be the same
    text again, once), then the question abstains with "unparsable". `n` analyses of a question are averaged, those with
    a label mass of `min_mass` or more. Seeds are drawn from `seed` and the prompt's text, so that equal questions get
    equal answers in whatever company. Raises AdjudgeError for settings that make no sense.
    """

    mode: Mode = "reasoned"

    def __init__(
        self,
        engine: EngineFace,
        sampling: Sampling,
        *,
        form: AnswerFormat,
        attempts: int,
        n: int,
        seed: int,
        min_mass: float,
    ) -> None:
        check_writer(engine)
        self.min_mass = min_mass
        self.reserve = room_for(sampling, engine, attempts=attempts, n=n)
        self.engine = engine
        self.sampling = sampling
        self.form = form
        self.attempts = attempts if sampling.temperature > 0 else 1
        self.n = n
        self.seed = seed
        self.content = {"sampling": sampling, "form": form, "attempts": self.attempts, "n": n, "seed": seed}

    def _answers(self, questions: Sequence[Question]) -> Iterator[tuple[int, Answer]]:
        answers: list[dict[int, Answer]] = [{} for _ in questions]  # by sample
        unread = [(place, sample) for place in range(len(questions)) for sample in range(self.n)]
        for attempt in range(self.attempts):
            asked, unread = unread, []
            prompts = [questions[place].prompt for place, _ in asked]
            seeds = [seed_of(self.seed, questions[place].prompt, sample, attempt) for place, sample in asked]
            for index, completion in self.engine.generate_iter(prompts, self.sampling, seeds=seeds):
                place, sample = asked[index]
                answer = self._read(questions[place], prompts, completion)
                if attempt < self.attempts - 1 and any(score.reason == "unparsable" for score in answer.scores):
                    unread.append((place, sample))
                    continue
                answers[place][sample] = answer
                if len(answers[place]) == self.n:
                    samples = [answers[place][sample] for sample in range(self.n)]
                    yield place, _mean(samples, questions[place].labels, self.min_mass)
            if not unread:
                return

    def _read(self, question: Question, prompts: Sequence[Prompt], completion: Completion) -> Answer:
        """The scores that a text holds; they abstain alike if it does not."""
        count = question.answers
        if completion.missing:
            scores = [Score.abstained(question.labels.labels, completion.missing, completion.prompt_tokens)] * count
        else:
            forms = [msgspec.structs.replace(self.form, which=which, count=count) for which in range(count)]
            scores = self.engine.read_answers(prompts, [completion] * count, question.labels, forms)
        return Answer(tuple(scores), (completion.text,))


def check_writer(engine: EngineFace) -> None:
    """Raise AdjudgeError for the weights of `house`, whose texts make no sense; an absent engine writes none."""
    if reads_normalised(engine.fingerprint, engine.adapter) and not isinstance(engine, AbsentEngine):
        raise AdjudgeError(SCORES_ONLY)


def room_for(sampling: Sampling, engine: EngineFace, *, attempts: int, n: int = 1) -> int:
    """The tokens that a prompt must leave for `n` texts in up to `attempts` each.

    Raises AdjudgeError for settings that make no sense, and for texts that leave a prompt no room.
    """
    at_least(1, attempts=attempts, n=n)
    if sampling.n != 1 or sampling.seed is not None:
        raise AdjudgeError("the sampling of analyses holds n or seed: give them to the judge itself")
    if sampling.temperature == 0 and n > 1:
        raise AdjudgeError(f"{n} analyses at temperature 0 are one text {n} times: give a temperature above 0")
    room = sampling.max_tokens + LABEL_TOKENS
    if room >= engine.max_prompt_tokens:
        raise AdjudgeError(
            f"{sampling.max_tokens} tokens of analysis leave no room for a prompt in the"
            f" {engine.max_prompt_tokens} that fit: give fewer max_tokens"
        )
    return room


def seed_of(seed: int, prompt: Prompt, sample: int, attempt: int) -> int:
    """The seed of one text, drawn from the user's `seed` and the prompt: equal questions get equal texts."""
    return int(content_key(seed=seed, prompt=prompt, sample=sample, attempt=attempt)[:16], 16)


def checked_sampling(sampling: Sampling | None) -> Sampling | None:
    """The same; raises AdjudgeError for what is none."""
    if sampling is not None and not isinstance(sampling, Sampling):
        raise AdjudgeError(f"sampling is {shown(sampling)}: give it as Sampling(max_tokens=…, temperature=…)")
    return sampling


def _mean(samples: Sequence[Answer], labels: Labels, min_mass: float) -> Answer:
    """One answer of several analyses."""
    columns = list(zip(*(answer.scores for answer in samples), strict=True))
    return Answer(
        tuple(_mean_score(column, labels, min_mass) for column in columns),
        tuple(text for answer in samples for text in answer.analyses or ()),
        tuple(_spread(column, min_mass) for column in columns) if len(samples) > 1 else None,
    )


def _counted(scores: Sequence[Score], min_mass: float) -> list[Score]:
    """Those that were read, and of these the ones of `min_mass` or more; the first one alone where none is so."""
    read = [score for score in scores if score.reason is None]
    return [score for score in read if (score.mass or 0.0) >= min_mass] or read[:1]


def _spread(scores: Sequence[Score], min_mass: float) -> float | None:
    """The standard deviation of what the analyses expect that count."""
    expected = [score.expected for score in _counted(scores, min_mass) if score.expected is not None]
    return stdev(expected) if len(expected) > 1 else None


def _mean_score(scores: Sequence[Score], labels: Labels, min_mass: float) -> Score:
    """The mean distribution, and mean mass, of the scores that count; the first one's reason where none was read.

    What another run may answer is the reason of them all: it would read more, and another mean.
    """
    if (passing := next((score for score in scores if score.reason in UNKEPT), None)) is not None:
        return passing
    read = _counted(scores, min_mass)
    if len(read) <= 1:
        return (read or scores)[0]
    mass = fmean(score.mass or 0.0 for score in read)
    probabilities = map(fmean, zip(*(score.probabilities or () for score in read), strict=True))
    logprobs = [math.log(p * mass) if p * mass else -math.inf for p in probabilities]
    return Score.of(labels.labels, logprobs, labels.numbers, read[0].prompt_tokens)
