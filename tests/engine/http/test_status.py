from __future__ import annotations

import httpx2
import openai
import pytest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.parser import text_string_to_metric_families

from adjudge.engine.async_engine import AsyncEngine
from adjudge.engine.engine import Engine
from adjudge.engine.http.errors import ErrorDetail
from adjudge.engine.http.limits import Limits
from tests.engine.http.serving import MODEL, Served, held, served, wait_until_idle


def samples(site: Served) -> dict[tuple[str, ...], float]:
    """Every metric's value, by its name and labels."""
    families = text_string_to_metric_families(site.get("/metrics").text)
    return {(sample.name, *sample.labels.values()): sample.value for family in families for sample in family.samples}


def test_the_model_is_listed_with_what_decides_its_scores(site: Served, client: openai.OpenAI) -> None:
    [model] = client.models.list().data
    face = site.engine.face
    assert (model.id, model.object, model.owned_by) == (MODEL, "model", "adjudge") and model.created > 0
    told = site.get("/v1/models").json()
    assert told["object"] == "list"
    entry = told["data"][0]
    assert (entry["fingerprint"], entry["adapter"], entry["dtype"]) == (face.fingerprint, None, "float32")
    assert (entry["max_model_len"], entry["max_answers"]) == (face.max_prompt_tokens, 10_000)
    assert client.models.retrieve(MODEL) == model
    with pytest.raises(openai.NotFoundError, match=f'model "some/other" is not served here: ask for "{MODEL}"'):
        client.models.retrieve("some/other")


def test_health(site: Served) -> None:
    response = site.get("/health")
    assert (response.status_code, response.json()) == (200, {"status": "ok"})


def test_a_sleeping_engine_is_not_healthy(site: Served) -> None:
    for change, status in ((Engine.sleep, "not_serving"), (Engine.wake, "ok")):
        site.engine.worker.between_steps(change).result(60)
        response = site.get("/health")
        assert (response.json(), response.is_success) == ({"status": status}, status == "ok")
        assert site.post("/v1/completions", {"prompt": "a", "max_tokens": 1}).is_success == response.is_success


def test_head_is_get_without_its_body(site: Served) -> None:
    for path, status in (("/health", 200), ("/v1/models", 200), ("/v1/score", 405)):
        answers = [httpx2.request(method, site.url + path) for method in ("HEAD", "GET")]
        assert [answer.status_code for answer in answers] == [status, status] and answers[0].content == b""
        assert answers[0].headers["content-length"] == str(len(answers[1].content))


def test_metrics_have_the_type_that_prometheus_asks_for(engine: AsyncEngine) -> None:
    with served(engine) as site:
        assert site.get("/metrics").headers["content-type"] == CONTENT_TYPE_LATEST


def test_metrics_count_requests_and_what_the_engine_does(engine: AsyncEngine) -> None:
    with served(engine) as site:
        wait_until_idle(engine)
        before = samples(site)
        body = {"query": "q" * 50, "items": ["a", "b"], "labels": ["1", "2"]}
        assert site.post("/v1/score", body).status_code == 200
        assert site.post("/v1/score", {"items": []}).status_code == 400
        assert site.get("/v1/no/such/route").status_code == 404
        assert site.get(f"/v1/models/{MODEL}").status_code == 200
        after = samples(site)

        def added(*key: str) -> float:
            return after[key] - before.get(key, 0.0)

        assert added("adjudge_http_requests_total", "/v1/score", "200") == 1
        assert added("adjudge_http_requests_total", "/v1/score", "400") == 1
        assert added("adjudge_http_requests_total", "other", "404") == 1
        assert added("adjudge_http_requests_total", "/v1/models/{name}", "200") == 1
        assert added("adjudge_http_request_seconds_count", "/v1/score") == 2
        assert added("adjudge_http_first_byte_seconds_count", "/v1/score") == 2
        assert added("adjudge_prompts_total") == 2
        assert (added("adjudge_prompt_tokens_total"), added("adjudge_tokens_computed_total")) == (102, 52)
        assert (added("adjudge_cache_hit_tokens_total"), added("adjudge_cache_missed_tokens_total")) == (50, 52)
        now = [after[f"adjudge_{name}",] for name in ("requests_running", "requests_waiting")]
        assert now == [0, 0] and {name for name, *_ in after} >= {"adjudge_preempted_total"}
        assert added("adjudge_kv_blocks_used") == -added("adjudge_kv_blocks_free") > 0


def test_metrics_tell_what_is_written_what_is_under_way_and_when_an_answer_began(engine: AsyncEngine) -> None:
    text = {"prompt": "once", "max_tokens": 30, "ignore_eos": True, "n": 2, "stream": True}
    with served(engine) as site:
        before = samples(site)
        with held(engine) as let_go, httpx2.stream("POST", site.url + "/v1/completions", json=text) as response:
            lines = response.iter_lines()
            assert next(lines)
            assert samples(site)["adjudge_http_requests_active",] == before["adjudge_http_requests_active",] + 1 == 2
            let_go()
            assert list(lines)[-2:] == ["data: [DONE]", ""]
        after = samples(site)
    assert after["adjudge_tokens_written_total",] - before["adjudge_tokens_written_total",] == 60
    seconds = [after[f"adjudge_http_{name}_seconds_sum", "/v1/completions"] for name in ("first_byte", "request")]
    assert 0 < seconds[0] < seconds[1]


def test_the_api_describes_itself(site: Served) -> None:
    assert site.get("/schema").headers["content-type"].startswith("text/html")
    described = site.get("/schema/openapi.json").json()
    paths = {"/v1/chat/completions", "/v1/completions", "/v1/score", "/v1/models", "/health", "/metrics"}
    assert paths <= described["paths"].keys() and described["info"]["title"] == "adjudge"
    fields = described["components"]["schemas"]["ScoreRequest"]["properties"]
    assert {"query", "items", "label_token_ids", "apply_softmax", "item_first", "labels"} <= fields.keys()
    answers = described["paths"]["/v1/score"]["post"]["responses"]["200"]["content"]["application/json"]["schema"]
    assert answers["$ref"].endswith("/ScoreResponse")
    errors = described["paths"]["/v1/score"]["post"]["responses"]["4XX"]["content"]["application/json"]["schema"]
    schemas = described["components"]["schemas"]
    error = schemas[errors["$ref"].rpartition("/")[2]]["properties"]["error"]
    detail = schemas[error["$ref"].rpartition("/")[2]]
    assert list(detail["properties"]) == list(ErrorDetail.__struct_fields__)
    assert detail["required"] == ["message", "type"]
    assert "security" not in described and "400" not in described["paths"]["/v1/score"]["post"]["responses"]


def test_the_page_says_that_there_is_a_key(engine: AsyncEngine) -> None:
    with served(engine, Limits(api_key="sesame")) as site:
        described = site.get("/schema/openapi.json").json()
    [(name, scheme)] = described["components"]["securitySchemes"].items()
    assert (scheme["type"], scheme["scheme"], described["security"]) == ("http", "bearer", [{name: []}])


def test_a_model_in_a_folder_is_found_by_its_path(monkeypatch: pytest.MonkeyPatch, engine: AsyncEngine) -> None:
    monkeypatch.setattr(engine.face, "name", "/models/one")
    with served(engine) as site, openai.OpenAI(base_url=f"{site.url}/v1", api_key="x", max_retries=0) as client:
        assert client.models.retrieve("/models/one").id == "/models/one" == client.models.list().data[0].id
        assert site.get("/v1/models/models/one").json()["id"] == "/models/one"
        with pytest.raises(openai.NotFoundError):
            client.models.retrieve("/models/two")


def test_a_model_may_be_served_under_another_name() -> None:
    with served(AsyncEngine(Engine(MODEL, kv_cache_gb=0.01)), name="writer") as site:
        assert [one["id"] for one in site.get("/v1/models").json()["data"]] == ["writer"]
        asked = {"prompt": "a", "max_tokens": 1}
        told = site.post("/v1/completions", asked | {"model": "writer"})
        assert told.status_code == 200 and told.json()["model"] == "writer"
        refused = site.post("/v1/completions", asked | {"model": MODEL})
        assert refused.status_code == 404 and 'ask for "writer"' in refused.json()["error"]["message"]
