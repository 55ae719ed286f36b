from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest

from adjudge.engine.async_engine import AsyncEngine
from adjudge.engine.engine import Engine
from tests.engine.http.serving import MODEL, Served, served


@pytest.fixture(scope="module")
def engine() -> Iterator[AsyncEngine]:
    engine = AsyncEngine(Engine(MODEL))
    yield engine
    engine.worker.close(drain=False)


@pytest.fixture(scope="module")
def site(engine: AsyncEngine) -> Iterator[Served]:
    with served(engine) as site:
        yield site


@pytest.fixture(scope="module")
def client(site: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=site.url + "/v1", api_key="none", max_retries=0) as client:
        yield client
