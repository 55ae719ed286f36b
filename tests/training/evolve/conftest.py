from __future__ import annotations

import pytest

from adjudge.engine.engine import Engine


@pytest.fixture(scope="session")
def tiny() -> Engine:
    return Engine("dummy:tiny-llama", kv_cache_gb=0.2)
