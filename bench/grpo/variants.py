"""Ways to have the completions of a training step judged, each opened anew for a run and closed after it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, NamedTuple

import msgspec

from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.face import EngineFace
from adjudge.engine.text.prompt import Prompt
from adjudge.engine.text.tokenizer import well_formed
from adjudge.rewards.judge_rewards.judge_reward import JudgeReward
from adjudge.rewards.judges.aspects import Aspect
from adjudge.rewards.judges.pointwise import PointwiseJudge
from adjudge.rewards.judges.template import load
from adjudge.rewards.records.group import Group
from adjudge.rewards.reward import GroupReward, ResponseReward, Reward, together

ONLY_THE_NUMBER = "\nAnswer with the number alone."
SERVE = (sys.executable, "-m", "adjudge", "serve")
DIGIT = re.compile(r"[1-5]")
PATIENCE = 300.0
"""Seconds that one reply may take."""


class Judging(msgspec.Struct, frozen=True):
    """Who judges what: the same model and aspects in all variants; replies have `reply_tokens` at most."""

    model: str
    aspects: tuple[Aspect, ...]
    device: str = "auto"
    dtype: str = "auto"
    reply_tokens: int = 8
    kv_cache_gb: float | None = None

    def judge(self, engine: EngineFace) -> PointwiseJudge:
        """adjudge's judge."""
        return PointwiseJudge(engine, self.aspects)


class Spent(msgspec.Struct, frozen=True):
    """Tokens of prompts that a judge's model was asked, those that went through it, and those that it wrote."""

    asked: int = 0
    computed: int = 0
    written: int = 0

    def since(self, before: Spent) -> Spent:
        """What was spent between."""
        return Spent(self.asked - before.asked, self.computed - before.computed, self.written - before.written)


class Opened(NamedTuple):
    """A reward, and what its model has spent so far."""

    reward: Reward
    spent: Callable[[], Spent]


class Variant(NamedTuple):
    """A way to judge, `open` within a context; `chats` says that it asks for replies and reads numbers out of them."""

    name: str
    open: Callable[[Judging], AbstractContextManager[Opened]]
    chats: bool = False


@contextmanager
def in_process(judging: Judging, *, sleep: bool) -> Iterator[Opened]:
    """adjudge's engine in the trainer's process; with `sleep` it has the device's memory only while it judges."""
    how: dict[str, Any] = {"device": judging.device, "dtype": judging.dtype, "kv_cache_gb": judging.kv_cache_gb}
    engine = Engine(judging.model, **how)
    reward = JudgeReward(judging.judge(engine)).during_training(sleep=sleep)
    if sleep:
        engine.sleep()
    yield Opened(reward, lambda: _spent(engine))


@contextmanager
def server_in_batch(judging: Judging) -> Iterator[Opened]:
    """A server, to which all questions of a step go at once."""
    from adjudge.engine.remote.remote_engine import RemoteEngine

    with serving(judging) as url, RemoteEngine(url) as engine:
        yield Opened(JudgeReward(judging.judge(engine)), lambda: _spent(engine))


@contextmanager
def server_one_by_one(judging: Judging) -> Iterator[Opened]:
    """A server that is asked for a reply about one completion after the other: what a plain reward function does."""
    with serving(judging) as url, ChatReward(url, judging) as reward:
        yield Opened(reward, lambda: reward.spent)


VARIANTS = (
    Variant("in process", partial(in_process, sleep=False)),
    Variant("in process, sleeping", partial(in_process, sleep=True)),
    Variant("server, all at once", server_in_batch),
    Variant("server, one by one", server_one_by_one, chats=True),
)


class ChatReward(Reward):
    """The baseline: a chat completion for each completion and aspect, greedy, and the first digit of the reply.

    A reply without a digit abstains; several aspects are averaged.
    """

    name = "chat"

    def __init__(self, url: str, judging: Judging) -> None:
        try:
            import httpx2
        except ImportError as error:
            raise AdjudgeError("asking a server needs httpx2: pip install 'adjudge[remote]'") from error
        self.judging, self.spent = judging, Spent()
        self._client = httpx2.Client(base_url=url, timeout=PATIENCE)

    def score_groups(self, groups: Sequence[Group]) -> list[GroupReward]:
        """The rewards of each group, asked one after the other."""
        return [together([self._rewarded(group.prompt, text) for text in group.responses]) for group in groups]

    def _rewarded(self, prompt: str, response: str) -> ResponseReward:
        scores = [self._score(messages) for messages in chats(self.judging, prompt, response)]
        known = [score for score in scores if score is not None]
        if len(known) < len(scores):
            return ResponseReward(None, "unparsable")
        return ResponseReward((sum(known) / len(known) - 1) / 4)

    def _score(self, messages: list[dict[str, str]]) -> int | None:
        how = {"model": self.judging.model, "max_tokens": self.judging.reply_tokens, "temperature": 0}
        reply = self._client.post("/v1/chat/completions", json={**how, "messages": messages})
        if reply.status_code != 200:
            raise AdjudgeError(f"the server answered {reply.status_code}: {reply.text[:200]}")
        record = reply.json()
        usage = record["usage"]
        asked, written = usage["prompt_tokens"], usage["completion_tokens"]
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        before = self.spent  # of a reply, the last token is not computed
        computed = before.computed + asked - cached + max(0, written - 1)
        self.spent = Spent(before.asked + asked, computed, before.written + written)
        found = DIGIT.search(record["choices"][0]["message"]["content"] or "")
        return None if found is None else int(found[0])

    def __enter__(self) -> ChatReward:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()


def chats(judging: Judging, prompt: str, response: str) -> list[list[dict[str, str]]]:
    """The conversations of the baseline about a completion, one an aspect: the judge's own words as plain text."""
    template = load("pointwise")
    made = []
    for aspect in judging.aspects:
        about: dict[str, Any] = {"aspect": aspect.name, "definition": aspect.definition}
        about |= {"mode": "direct", "layout": "shared"}
        messages, _ = template.render(data={"prompt": prompt, "story": response}, **about)
        made.append([{"role": message.role, "content": _text(message.content)} for message in messages])
        made[-1][-1]["content"] += ONLY_THE_NUMBER
    return made


@contextmanager
def serving(judging: Judging) -> Iterator[str]:
    """The address of `adjudge serve` in a process of its own, on a free port; raises AdjudgeError if there is none."""
    where = ["--device", judging.device, "--dtype", judging.dtype]
    if judging.kv_cache_gb is not None:
        where += ["--kv-cache-gb", str(judging.kv_cache_gb)]
    command = [*SERVE, "--model", judging.model, "--port", "0", *where]
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if " on http" not in line:
                process.wait()
                errors.seek(0)
                said = errors.read().strip().splitlines() or ["nothing"]
                raise AdjudgeError(f"adjudge serve did not start: {said[-1]}")
            yield line.partition(" on ")[2].split()[0]
            process.send_signal(signal.SIGTERM)
            process.wait(60)
        finally:
            process.kill()


def _spent(engine: EngineFace) -> Spent:
    return Spent(engine.stats.prompt_tokens, engine.stats.tokens_computed)


def _text(prompt: Prompt) -> str:
    return well_formed("".join(segment.text for segment in prompt.segments))
