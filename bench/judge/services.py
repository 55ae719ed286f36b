"""Variants that take a question at any time, for measurements under load."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

from adjudge.bench.judge.peer_models import PeerModels
from adjudge.bench.judge.peers import ContinuousWriter, LlamaCppPeer, OneAtATime, OneByOne, continuous
from adjudge.bench.judge.questions import Questions
from adjudge.engine.async_engine import AsyncEngine
from adjudge.engine.engine import Engine
from adjudge.rewards.judges.pairwise import SCALE


class Service(ABC):
    """Answers questions by their place; within `async with` it is open, and has nothing cached when it opens."""

    name: str
    note: str = ""
    questions: Questions

    async def __aenter__(self) -> None:
        return None

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        return None

    @abstractmethod
    async def answer(self, place: int) -> int:
        """Answer one question; the number of tokens written."""

    def close(self) -> None:
        """Let go of what the service holds outside Python."""
        return None


class OurService(Service):
    """adjudge's `AsyncEngine`."""

    def __init__(self, name: str, engine: Engine, questions: Questions) -> None:
        self.name, self.engine, self.questions = name, engine, questions

    async def __aenter__(self) -> None:
        self.engine.cache.clear()
        self.front = AsyncEngine(self.engine)

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        await self.front.close(drain=error is None)

    async def answer(self, place: int) -> int:
        """One call of one prompt."""
        prompt, writes = self.questions.prompts[place], self.questions.writes
        if writes:
            [text] = await self.front.generate([prompt], max_tokens=writes, temperature=0.0, ignore_eos=True)
            if text.finish_reason != "length":
                raise RuntimeError(f"a text ended with {text.finish_reason}")
            return len(text.token_ids)
        [score] = await self.front.score([prompt], SCALE)
        if score.reason is not None:
            raise RuntimeError(f"a score abstained with {score.reason}")
        return 0


class QueuedService(Service):
    """A peer that answers one question after the other, behind a queue."""

    def __init__(self, peer: OneByOne, questions: Questions) -> None:
        self.peer, self.questions, self.name = peer, questions, peer.name

    async def __aenter__(self) -> None:
        self.peer.begin()
        self.thread = ThreadPoolExecutor(1)

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        await asyncio.to_thread(self.thread.shutdown, cancel_futures=True)

    async def answer(self, place: int) -> int:
        """Wait for one's turn."""
        prompt = self.questions.prompts[place]
        answer, _ = await asyncio.get_running_loop().run_in_executor(self.thread, self.peer.answer, prompt)
        return len(answer) if self.questions.writes else 0

    def close(self) -> None:
        """What the peer does."""
        self.peer.close()


class ContinuousService(Service):
    """transformers' continuous batching; in place of a score it writes one token."""

    name = ContinuousWriter.name

    def __init__(self, questions: Questions, model: Any) -> None:
        self.questions, self.model = questions, model
        if not questions.writes:
            self.note = "one token each: it has no log-probabilities of chosen tokens"

    async def __aenter__(self) -> None:
        self.stack = ExitStack()
        settings = continuous(self.questions)
        self.manager = self.stack.enter_context(self.model.continuous_batching_context_manager(**settings))

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        await asyncio.to_thread(self.stack.close)

    async def answer(self, place: int) -> int:
        """One request, answered through the event loop."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.manager.register_result_handler(str(place), answer.set_result)
        if self.manager.add_request(list(self.questions.prompts[place]), request_id=str(place)) is None:
            raise RuntimeError("its thread has ended and takes no more requests")
        output = await answer
        if output.error is not None:
            raise RuntimeError(output.error)
        return len(output.generated_tokens) if self.questions.writes else 0


def services(engines: Mapping[str, Engine], questions: Questions, models: PeerModels) -> list[Service]:
    """adjudge, and the peers that can take a question while others are under way, or queue it."""
    found: list[Service] = [
        *(OurService(name, engine, questions) for name, engine in engines.items()),
        ContinuousService(questions, models.transformers),
        QueuedService(OneAtATime(questions, models.transformers), questions),
    ]
    if models.llama_cpp is not None:
        found.append(QueuedService(LlamaCppPeer(questions, models.llama_cpp), questions))
    return found
