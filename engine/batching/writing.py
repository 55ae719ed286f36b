"""Requests that end in a text: one token more each time they are answered."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch

from adjudge.engine.batching.call import Call
from adjudge.engine.batching.prompt_reading import PromptReading
from adjudge.engine.batching.step import Request
from adjudge.engine.choosing import Wish, choose_each, likeliest, log_sums, uniform
from adjudge.engine.completion import Completion, FinishReason, TokenLogprob
from adjudge.engine.sampling import Sampling
from adjudge.engine.text.grammar import Form, Grammars
from adjudge.engine.text.growing_text import GrowingText
from adjudge.engine.text.tokenizer import Tokenizer
from adjudge.engine.tokens import Tokens


@dataclass(eq=False, kw_only=True)
class Writer(Request):
    """A text being generated: the `sample`-th for prompt number `prompt` of its call, in at most `room` tokens.

    With a `reading` of its prompt it is answered when that is complete as well.
    """

    call: Call
    place: int
    prompt: int
    sample: int
    prompt_tokens: int
    sampling: Sampling
    seed: tuple[int, int]
    room: int
    end_ids: frozenset[int]
    written: GrowingText
    form: Form | None
    """That of all texts of the call, until this one begins and has its own."""
    reading: PromptReading | None = None
    logprobs: list[TokenLogprob] = field(default_factory=list)
    text: str | None = None
    seen: torch.Tensor | None = None
    """The tokens so far, where there is a penalty: to look through all of them for each would take 3 ms."""

    @property
    def stem(self) -> int:
        """The prompt, where it is read as well and this is the first of its texts."""
        return self.prompt_tokens if self.reading and self.sample == 0 else 0

    @property
    def missed_of_prompt(self) -> int:
        """The token that each text needs of its prompt counts for the first of them."""
        return self.missed if self.sample and self.missed >= 0 else super().missed_of_prompt

    @property
    def most(self) -> int:
        """How many tokens it may come to have: the prompt's, and those there is room for."""
        return self.prompt_tokens + self.room

    def settled_text(self) -> str:
        """The text as far as no token to come can change it: whole characters, and no beginning of a stop string."""
        if self.text is not None:
            return self.text
        settled = self.written.settled
        return settled[: len(settled) - self.written.begun(self.sampling.stop)]

    def wish(self, log_sum: float) -> Wish | None:
        """What the next token is chosen by, `log_sum` being that of its logits; None where the text ends without."""
        if not math.isfinite(log_sum):
            self.finish("non_finite")
            return None
        if self.form and not self.logprobs:
            self.form = self.form.copy()
        allowed_V = self.form.allowed() if self.form else None
        if allowed_V is not None and not allowed_V.any():
            self.finish("length")  # no token can bring the text to its form
            return None
        if self.sampling.heeds_before and self.seen is None:
            self.seen = torch.tensor(sorted(set(self.whole)))
        before = () if self.seen is None else self.seen
        own = len(self.logprobs)
        return Wish(self.sampling, before, uniform(self.seed, own), allowed_V, own)

    def take(self, token: TokenLogprob) -> None:
        """Go on with the token chosen, and answer if it was the last."""
        self.logprobs.append(token)
        self.next_token = token.token_id
        if self.seen is not None:
            self.seen = torch.cat([self.seen, torch.tensor([token.token_id])])
        ends = token.token_id in self.end_ids
        if ends and not self.sampling.ignore_eos:
            return self._end()
        formed = self.form is not None and self.form.take(token.token_id)
        if not (ends and formed and self._complete):
            self.written.add(token.token_id)
        if (place := self.written.first(self.sampling.stop)) is not None:
            self.text = self.written.settled[:place]
            self._end()
        elif formed:
            self._end()
        elif len(self.logprobs) >= self.room:
            self.finish("length")

    def finish(self, reason: FinishReason) -> None:
        """End here, and answer."""
        self.done = True
        if self.text is None:
            self.text, stopped = self.written.ended(self.sampling.stop)
            if stopped and reason == "length" and self._complete:
                reason = "stop"
        self.form = self.seen = None  # thousands of texts may wait for the rest of their call
        ids = tuple(token.token_id for token in self.logprobs)
        completion = Completion(
            self.prompt, self.sample, self.text, ids, reason, tuple(self.logprobs), self.prompt_tokens
        )
        answer = partial(self.call.answer, self.place)
        if self.reading is None:
            answer(completion)
        else:
            self.reading.complete(completion, answer)

    def give_up(self) -> None:
        """Answer with what is written so far: the deadline has passed."""
        self.finish("timeout")

    @property
    def _complete(self) -> bool:
        return self.form is None or self.form.complete

    def _end(self) -> None:
        """Finish a text that has come to an end of its own; one without its form is cut short all the same."""
        self.finish("stop" if self._complete else "length")


def write(some: Sequence[Writer], logits_RV: torch.Tensor) -> int:
    """Choose the next token of each text from its row of the model's logits (float32), and answer those that end.

    A text for which the model leaves none of the tokens that may come ends there. How many tokens were chosen.
    """
    sums_R = log_sums(logits_RV)
    wishes = {row: wish for row, log_sum in enumerate(sums_R.tolist()) if (wish := some[row].wish(log_sum))}
    rows = list(wishes)
    tokens = choose_each(logits_RV, wishes)
    chosen_R = logits_RV[rows, tokens] - sums_R[rows]
    tops = likeliest(logits_RV, sums_R, [writer.sampling.logprobs for writer in some])
    for row, token, logprob in zip(rows, tokens, chosen_R.tolist(), strict=True):
        if token < 0:
            some[row].finish("length")
        else:
            some[row].take(TokenLogprob(token, logprob, tops[row]))
    return sum(token >= 0 for token in tokens)


def writers(
    call: Call,
    prompts: Sequence[Tokens],
    sampling: Sampling,
    seeds: Sequence[int],
    end_ids: frozenset[int],
    tokenizer: Tokenizer,
    grammars: Grammars,
) -> Iterator[Writer]:
    """The texts that a call wants, `sampling.n` for each prompt, those of a prompt together."""
    form = grammars.form(sampling)
    for prompt, (tokens, seed) in enumerate(zip(prompts, seeds, strict=True)):
        for sample in range(sampling.n):
            call.open += 1
            yield Writer(
                tokens,
                keep=len(tokens),
                done=False,
                call=call,
                place=prompt * sampling.n + sample,
                prompt=prompt,
                sample=sample,
                prompt_tokens=len(tokens),
                sampling=sampling,
                seed=(int(seed) % (1 << 64), sample),
                room=sampling.max_tokens,
                end_ids=end_ids,
                written=GrowingText(tokenizer.decode_on, tokenizer.bytewise),
                form=form,
            )
