"""A server of a test's own that speaks as adjudge, vLLM, SGLang or plain OpenAI do, with a real engine behind it."""

from __future__ import annotations

import base64
import json
import socket
import ssl
import struct
import sys
import threading
from collections import deque
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec
import numpy as np

from adjudge.engine.completion import Completion, TokenLogprob
from adjudge.engine.engine import Engine
from adjudge.engine.sampling import Sampling
from adjudge.engine.text.labels import LabelSet

KINDS = ("adjudge", "vllm", "sglang", "openai")

Answer = Callable[[BaseHTTPRequestHandler, "Peer"], bool]
"""Does something to a request instead of, or before, its proper answer; True: there is no more to do."""


class Peer:
    """Answers on a free port until it is closed.

    `script` is what to do to the next POST requests, in order, `opening` to the next GET requests. `knows_ids` makes
    the vLLM honour logprob_token_ids; `top` is how many alternatives it and the plain server list. `card` changes the
    model's card, `before` is what it puts before its texts. With a `tls` context it speaks HTTPS.
    """

    def __init__(self, kind: str, engine: Engine, *, key: str | None = None, tls: ssl.SSLContext | None = None) -> None:
        self.kind, self.engine, self.key = kind, engine, key
        self.knows_ids, self.top, self.embeds = True, 20, True
        self.before = ""
        self.card: dict[str, Any] = {}
        self.script: deque[Answer] = deque()
        self.opening: deque[Answer] = deque()
        self.bodies: list[dict[str, Any]] = []
        self.under_way = self.most_under_way = 0
        self.hanging = threading.Event()
        self.over = threading.Event()
        self._lock = threading.Lock()
        self._compute = threading.Lock()
        self._server = Server(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        self.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self.over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def models(self) -> dict[str, Any]:
        card: dict[str, Any] = {"id": self.engine.name, "object": "model", "created": 0, "owned_by": self.kind}
        if self.kind == "openai":
            card["owned_by"] = "someone"
        else:
            card["max_model_len"] = self.engine.max_prompt_tokens
        if self.kind == "adjudge":
            engine = self.engine
            card |= {"fingerprint": engine.fingerprint, "adapter": engine.adapter, "dtype": engine.dtype}
        return {"object": "list", "data": [card | self.card]}

    def answer(self, path: str, body: dict[str, Any]) -> Any:
        """The proper answer to a POST request, or None where there is no such path."""
        paths: dict[tuple[str, str], Callable[[dict[str, Any]], Any]] = {
            ("adjudge", "/v1/score"): self._score,
            ("adjudge", "/v1/completions"): self._completions,
            ("vllm", "/v1/completions"): self._completions,
            ("openai", "/v1/completions"): self._completions,
            ("sglang", "/generate"): self._generate,
            ("sglang", "/classify"): self._native_rewards,
        }
        paths |= {(kind, "/v1/embeddings"): self._embeddings for kind in KINDS if self.embeds}
        paths |= {(kind, "/classify"): self._classify for kind in ("adjudge", "vllm")}
        if path == "/classify" and self.engine.reward_head is None:
            return None
        answer = paths.get((self.kind, path))
        with self._compute:
            return answer(body) if answer else None

    def logprobs(self, tokens: list[int], ids: list[int] | None = None) -> dict[int, float]:
        """Full log-probabilities of tokens (None: all) after others."""
        ids = list(range(self.engine.tokenizer.vocab_size)) if ids is None else ids
        [score] = self.engine.score([tokens], LabelSet.of_ids(ids))
        assert score.full_logprobs is not None
        return dict(zip(ids, score.full_logprobs, strict=True))

    def _score(self, body: dict[str, Any]) -> dict[str, Any]:
        assert set(body) <= {"model", "query", "items", "label_token_ids", "apply_softmax", "item_first", "priority"}
        assert body["query"] == [] and not body["apply_softmax"]
        computed = self.engine.stats.tokens_computed
        scores = self.engine.score(body["items"], [LabelSet.of_ids(ids) for ids in body["label_token_ids"]])
        asked = sum(map(len, body["items"]))
        return {
            "model": body["model"],
            "results": msgspec.to_builtins(scores),
            "usage": _usage(asked, 0, asked - (self.engine.stats.tokens_computed - computed)),
        }

    def _completions(self, body: dict[str, Any]) -> dict[str, Any]:
        ids = body.get("logprob_token_ids")
        if self.kind != "adjudge" and body.get("logprobs") and body["max_tokens"] == 1 and "n" not in body:
            return self._one_token(body, ids if self.knows_ids else None)
        assert self.kind != "adjudge" or not ids
        completions = self._write(body["prompt"], body)
        n, named = body.get("n", 1), "return_tokens_as_token_ids" in body
        choices = []
        for index, completion in enumerate(completions):
            choice: dict[str, Any] = {"index": index, "text": self.before + completion.text}
            choice["finish_reason"] = completion.finish_reason
            if body.get("return_token_ids"):
                choice["token_ids"] = list(completion.token_ids)
            if body.get("logprobs") is not None:
                choice["logprobs"] = self._named_logprobs(completion, named)
            if completion.prompt_logprobs:
                choice["prompt_logprobs"] = [None, *map(_numbered, completion.prompt_logprobs[1:])]
            choices.append(choice)
        assert len(choices) == n
        written = sum(len(completion.token_ids) for completion in completions)
        # Servers answer in any order.
        return {"choices": choices[::-1], "usage": _usage(len(body["prompt"]), written)}

    def _one_token(self, body: dict[str, Any], ids: list[int] | None) -> dict[str, Any]:
        values = self.logprobs(body["prompt"])
        drawn = min(values, key=lambda token: values[token])  # as improbable a draw as can be
        listed = ids or sorted(values, key=lambda token: -values[token])[: min(self.top, body["logprobs"])]
        name = self._name if self.kind == "openai" else "token_id:{}".format
        top = {name(token): values[token] for token in [drawn, *listed]}
        logprobs = {"tokens": [name(drawn)], "token_logprobs": [values[drawn]], "top_logprobs": [top]}
        choice = {"index": 0, "text": "", "finish_reason": "length", "logprobs": logprobs}
        return {"choices": [choice], "usage": _usage(len(body["prompt"]), 1)}

    def _generate(self, body: dict[str, Any]) -> Any:
        tokens, params = body["input_ids"], body["sampling_params"]
        if "token_ids_logprob" in body:
            values = self.logprobs(tokens)
            listed = [[values[token], token, None] for token in body["token_ids_logprob"]]
            meta = {"finish_reason": {"type": "length"}, "prompt_tokens": len(tokens), "completion_tokens": 1}
            return {"text": "", "meta_info": meta | {"output_token_ids_logprobs": [listed]}}
        outputs = []
        renamed = params | {"max_tokens": params["max_new_tokens"], "logprobs": body["top_logprobs_num"]}
        if "logprob_start_len" in body:
            assert body["logprob_start_len"] == 0
            renamed["prompt_logprobs"] = body["top_logprobs_num"]
        for completion in self._write(tokens, renamed):
            meta = {
                "finish_reason": {"type": completion.finish_reason},
                "prompt_tokens": len(tokens),
                "completion_tokens": len(completion.token_ids),
                "output_token_logprobs": [[token.logprob, token.token_id, None] for token in completion.logprobs],
                "output_top_logprobs": [[[lp, i, None] for i, lp in token.top] for token in completion.logprobs],
            }
            if completion.prompt_logprobs:
                read = completion.prompt_logprobs[1:]
                first = [None, tokens[0], None]
                meta["input_token_logprobs"] = [first, *([one.logprob, one.token_id, None] for one in read if one)]
                meta["input_top_logprobs"] = [None, *([[lp, i, None] for i, lp in one.top] for one in read if one)]
            outputs.append({"text": self.before + completion.text, "meta_info": meta})
        return outputs if len(outputs) > 1 else outputs[0]

    def _embeddings(self, body: dict[str, Any]) -> dict[str, Any]:
        own = {"adjudge": {"abstain"}, "vllm": {"use_activation"}}.get(self.kind, set())
        assert body.keys() == {"model", "input", "encoding_format"} | own and not body.get("use_activation")
        data = []
        for index, embedding in enumerate(self.engine.embed(body["input"])):
            one: dict[str, Any] = {"index": index, "object": "embedding", "embedding": None}
            if embedding.values is None:
                assert body.get("abstain")
                one["reason"] = embedding.reason
            elif body["encoding_format"] == "base64":
                one["embedding"] = base64.b64encode(embedding.values.tobytes()).decode()
            elif self.kind == "openai":
                one["embedding"] = embedding.values.tolist()
            else:  # SGLang scales them
                one["embedding"] = (embedding.values / np.linalg.norm(embedding.values)).tolist()
            data.append(one)
        return {"object": "list", "data": data[::-1], "usage": _usage(sum(map(len, body["input"])), 0)}

    def _classify(self, body: dict[str, Any]) -> dict[str, Any]:
        own = {"abstain"} if self.kind == "adjudge" else set()
        assert body.keys() == {"model", "input", "use_activation"} | own and body["use_activation"] is False
        data = []
        for index, reward in enumerate(self.engine.reward(body["input"])):
            assert reward.value is not None or body.get("abstain")
            probs = [] if reward.value is None else [reward.value]
            data.append({"index": index, "label": "LABEL_0", "probs": probs, "num_classes": 1, "reason": reward.reason})
        return {"object": "list", "data": data, "usage": _usage(sum(map(len, body["input"])), 0)}

    def _native_rewards(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        assert body.keys() == {"input_ids"}
        return [
            {"embedding": [reward.value], "meta_info": {"prompt_tokens": reward.prompt_tokens, "finish_reason": None}}
            for reward in self.engine.reward(body["input_ids"])
        ]

    def _write(self, tokens: list[int], body: dict[str, Any]) -> list[Completion]:
        """Texts under the request's fields, whatever a dialect calls them."""
        forms = {"json": "json_schema", "choice": "choices", "regex": "regex"}
        fields = {forms[name]: value for name, value in body.get("structured_outputs", {}).items()}
        fields |= {name: value for name, value in body.items() if name in Sampling.__struct_fields__}
        fields["logit_bias"] = {int(token): bias for token, bias in (fields.get("logit_bias") or {}).items()}
        fields["top_k"] = max(0, fields.get("top_k", 0))
        return self.engine.generate([tokens], **fields)

    def _named_logprobs(self, completion: Completion, by_number: bool) -> dict[str, Any]:
        name = "token_id:{}".format if by_number else self._name
        return {
            "tokens": [name(token.token_id) for token in completion.logprobs],
            "token_logprobs": [token.logprob for token in completion.logprobs],
            "top_logprobs": [{name(other): lp for other, lp in token.top} for token in completion.logprobs],
        }

    def _name(self, token: int) -> str:
        return self.engine.tokenizer.decode([token])

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        peer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # headers and body in one packet, which nobody waits for

            def do_GET(self) -> None:
                if peer.opening and peer.opening.popleft()(self, peer):
                    return None
                if peer.key is not None and self.headers["authorization"] != f"Bearer {peer.key}":
                    return send(self, 401, {"error": {"message": "the key is wrong"}})
                send(self, 200 if self.path == "/v1/models" else 404, peer.models())

            def do_POST(self) -> None:
                raw = self.rfile.read(length := int(self.headers["content-length"]))
                if len(raw) < length:  # the client has gone
                    self.close_connection = True
                    return
                body = json.loads(raw)
                with peer._lock:
                    peer.bodies.append(body)
                    act = peer.script.popleft() if peer.script else None
                    peer.under_way += 1
                    peer.most_under_way = max(peer.most_under_way, peer.under_way)
                try:
                    done = act is not None and act(self, peer)
                    answer = None if done else peer.answer(self.path, body)
                finally:
                    with peer._lock:
                        peer.under_way -= 1
                if not done:
                    send(self, 200 if answer is not None else 404, answer)

            def log_message(self, *_: Any) -> None:
                pass

        return Handler


class Server(ThreadingHTTPServer):
    """Takes it in silence that a client goes before it has its answer."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def send(handler: BaseHTTPRequestHandler, status: int, body: Any, **headers: str) -> None:
    """Answer with JSON, or with bytes as they are."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.send_header("content-length", str(len(raw)))
    handler.end_headers()
    handler.wfile.write(raw)


def says(status: int, body: Any = None, **headers: str) -> Answer:
    """Answers so, whatever was asked."""

    def act(handler: BaseHTTPRequestHandler, peer: Peer) -> bool:
        send(handler, status, {"error": {"message": "trouble"}} if body is None else body, **headers)
        return True

    return act


def proper(handler: BaseHTTPRequestHandler, peer: Peer) -> bool:
    """Answers as it should."""
    return False


def breaks_off(handler: BaseHTTPRequestHandler, peer: Peer) -> bool:
    """Resets the connection in the middle of the body."""
    handler.send_response(200)
    handler.send_header("content-length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"choices": [')
    handler.wfile.flush()
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()
    handler.close_connection = True
    return True


def cut_short(handler: BaseHTTPRequestHandler, peer: Peer) -> bool:
    """Ends in the middle of the body, without a word."""
    handler.send_response(200)
    handler.send_header("content-length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"choices": [')
    handler.close_connection = True
    return True


def hangs(handler: BaseHTTPRequestHandler, peer: Peer) -> bool:
    """Never answers."""
    peer.hanging.set()
    peer.over.wait()
    handler.close_connection = True
    return True


def _numbered(read: TokenLogprob | None) -> dict[str, dict[str, Any]]:
    """A token of a prompt and its alternatives, as vLLM lists them."""
    assert read is not None
    listed = {read.token_id: read.logprob, **dict(read.top)}
    return {
        str(token): {"logprob": value, "rank": place, "decoded_token": "?"}
        for place, (token, value) in enumerate(listed.items(), 1)
    }


def _usage(prompt: int, completion: int, cached: int = 0) -> dict[str, Any]:
    details = {"cached_tokens": cached}
    return {"prompt_tokens": prompt, "completion_tokens": completion, "prompt_tokens_details": details}
