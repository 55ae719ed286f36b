"""`/v1/chat/completions`: the reply to a conversation, in OpenAI's form."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from litestar import post
from litestar.di import NamedDependency
from litestar.params import JSONBody
from litestar.response import Stream

from adjudge.engine.completion import Completion, FinishReason, TokenLogprob
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.face import AnyPrompt
from adjudge.engine.http.errors import HttpError, too_long
from adjudge.engine.http.limits import MOST_LOGPROBS
from adjudge.engine.http.prompt_tokens import PromptLogprobs, check_numbers, check_whole, tokens_of, worded
from adjudge.engine.http.service import AnyRequest, Service
from adjudge.engine.http.text_request import UNREAD, Only, TextRequest, Unread, Usage, refuse_others
from adjudge.engine.http.texts import Delta, begin, stream
from adjudge.engine.http.token_names import LEAST
from adjudge.engine.text.prompt import Message, Prompt, Segment


class TextPart(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    """A part of a message; there are only texts."""

    text: str


class ChatMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One turn. Its text is data: special-token strings in it are plain characters.

    `name` is taken and not shown to the model; `type` is what lm-eval sends. The other fields are those of a reply of
    OpenAI's that is sent back; they must be null, or say nothing.
    """

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart]
    name: str | None = None
    type: Literal["text"] | None = None
    annotations: Unread = UNREAD
    refusal: None = None
    audio: None = None
    function_call: None = None
    reasoning_content: None = None
    tool_calls: Annotated[list[Any], msgspec.Meta(max_length=0)] | None = None

    def message(self) -> Message:
        """The turn as the engine's template takes it."""
        texts = [self.content] if isinstance(self.content, str) else [part.text for part in self.content]
        role = "system" if self.role == "developer" else self.role
        return Message(role, Prompt(tuple(map(Segment, texts))))


class NamedSchema(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A JSON schema; it is always followed strictly."""

    schema: dict[str, Any]
    name: str | None = None
    description: str | None = None
    strict: bool | None = None


class ResponseFormat(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The form of the reply: any text, any JSON object, or one of a schema."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: NamedSchema | None = None

    def form(self) -> dict[str, Any] | None:
        """The schema to follow; raises a 400 where there should be one."""
        field = "response_format.json_schema"
        if self.type == "json_schema":
            if self.json_schema is None:
                raise HttpError(400, f"{field} is missing", param=field)
            return self.json_schema.schema
        if self.json_schema is not None:
            raise HttpError(400, f'{field} is given beside the type "{self.type}": leave one out', param=field)
        return {"type": "object"} if self.type == "json_object" else None


class ChatRequest(TextRequest, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`messages` go through the model's own chat template; without `max_tokens` a reply may fill the context.

    `prompt_logprobs` (vLLM's) is how many alternatives to report for each of the tokens they come to, by their ids.

    There are only texts, without tools: `parallel_tool_calls` is taken and does nothing.
    """

    messages: list[ChatMessage]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    prompt_logprobs: int | None = None
    response_format: ResponseFormat | None = None

    tools: Annotated[Any, Only([])] = None
    tool_choice: Annotated[Any, Only("none", "auto")] = None
    functions: Annotated[Any, Only([])] = None
    function_call: Annotated[Any, Only("none")] = None
    modalities: Annotated[Any, Only(["text"])] = None
    audio: Annotated[Any, Only()] = None
    prediction: Annotated[Any, Only()] = None
    web_search_options: Annotated[Any, Only()] = None
    reasoning_effort: Annotated[Any, Only("none")] = None
    verbosity: Annotated[Any, Only("medium")] = None
    chat_template: Annotated[Any, Only()] = None
    chat_template_kwargs: Annotated[Any, Only({}, {"enable_thinking": False})] = None
    add_generation_prompt: Annotated[bool | None, Only(True)] = None
    continue_final_message: Annotated[bool | None, Only(False)] = None
    documents: None = None
    echo: Annotated[bool | None, Only(False)] = None
    parallel_tool_calls: Unread = UNREAD


class Alternative(msgspec.Struct, frozen=True):
    """A token, its log-probability and its bytes."""

    token: str
    logprob: float
    bytes: list[int]


class ChatLogprob(msgspec.Struct, frozen=True):
    """A chosen token and the most probable ones in its place."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[Alternative]


class ChatLogprobs(msgspec.Struct, frozen=True):
    """The tokens of a reply, the one that ended it included."""

    content: list[ChatLogprob]


class Reply(msgspec.Struct, frozen=True, omit_defaults=True):
    """The message written, or what is added to it."""

    role: str | None = None
    content: str | None = None


class ChatChoice(msgspec.Struct, frozen=True, omit_defaults=True):
    """A reply (`message`), or in a stream what is added to it (`delta`)."""

    index: int
    finish_reason: FinishReason | None
    message: Reply | None = None
    delta: Reply | None = None
    logprobs: ChatLogprobs | None = None
    token_ids: list[int] | None = None


class ChatResponse(msgspec.Struct, frozen=True):
    """All replies, or, in a stream, one chunk."""

    id: str
    object: Literal["chat.completion", "chat.completion.chunk"]
    model: str
    created: int
    choices: list[ChatChoice]
    usage: Usage | None = None
    prompt_logprobs: PromptLogprobs | None = None


@post("/v1/chat/completions", status_code=200, tags=["texts"])
async def chat(
    data: JSONBody[ChatRequest], request: AnyRequest, service: NamedDependency[Service]
) -> ChatResponse | Stream:
    """Reply to a conversation."""
    service.check_model(data.model)
    refuse_others(data)
    options, renamed = _options(data, service)
    timeout = service.timeout(request, data.timeout)
    prompt: AnyPrompt = await service.unless_gone(request, _prompt(data, service), timeout)
    if (count := data.prompt_logprobs) is not None:
        check_whole(data, "prompt_logprobs")
        reading = asyncio.to_thread(tokens_of, service, [prompt], "messages")
        [prompt] = await service.unless_gone(request, reading, service.timeout(request, data.timeout))
        check_numbers(len(prompt), [count], "prompt_logprobs")
        options["prompt_logprobs"] = count
    texts = await begin(service, request, [prompt], data, options, field="messages", renamed=renamed)
    wording = _Wording(service, data)
    if data.stream:
        usage = wording.usage if data.wants_usage else None
        tokens = bool(data.logprobs or data.return_token_ids)
        return stream(texts, wording.chunk, usage, tokens=tokens, token_names=service.token_names)
    done = await service.unless_gone(request, texts.all())
    return await asyncio.to_thread(wording.replies, done, texts.usage)


class _Wording:
    """The form in which one request's replies are answered."""

    def __init__(self, service: Service, body: ChatRequest) -> None:
        self._body, self._model, self._token_names = body, service.model, service.token_names
        self._id, self._created = f"chatcmpl-{uuid.uuid4().hex}", int(time.time())
        self._begun: set[int] = set()

    def response(
        self,
        kind: Literal["chat.completion", "chat.completion.chunk"],
        choices: list[ChatChoice],
        usage: Usage | None = None,
        read: PromptLogprobs | None = None,
    ) -> ChatResponse:
        return ChatResponse(self._id, kind, self._model, self._created, choices, usage, read)

    def replies(self, completions: Sequence[Completion], usage: Usage) -> ChatResponse:
        choices = [
            ChatChoice(
                completion.sample,
                completion.finish_reason,
                message=Reply("assistant", completion.text),
                logprobs=self.logprobs(completion.logprobs),
                token_ids=list(completion.token_ids) if self._body.return_token_ids else None,
            )
            for completion in completions
        ]
        read = worded(completions[0].prompt_logprobs, self._body.prompt_logprobs or 0, self._token_names)
        return self.response("chat.completion", choices, usage, read)

    def chunk(self, delta: Delta) -> ChatResponse:
        role = None if delta.place in self._begun else "assistant"
        self._begun.add(delta.place)
        choice = ChatChoice(
            delta.place,
            delta.finish_reason,
            delta=Reply(role, delta.text),
            logprobs=self.logprobs(delta.tokens),
            token_ids=[token.token_id for token in delta.tokens] if self._body.return_token_ids else None,
        )
        return self.response("chat.completion.chunk", [choice])

    def usage(self, usage: Usage) -> ChatResponse:
        return self.response("chat.completion.chunk", [], usage)

    def logprobs(self, tokens: Sequence[TokenLogprob]) -> ChatLogprobs | None:
        if not self._body.logprobs:
            return None
        return ChatLogprobs(
            [
                ChatLogprob(
                    *self._token(token.token_id, token.logprob),
                    [Alternative(*self._token(*other)) for other in token.top],
                )
                for token in tokens
            ]
        )

    def _token(self, token: int, logprob: float) -> tuple[str, float, list[int]]:
        return self._token_names.text(token), max(logprob, LEAST), list(self._token_names.raw(token))


def _options(body: ChatRequest, service: Service) -> tuple[dict[str, Any], dict[str, str]]:
    """What to sample, and which of its fields the client knows under another name."""
    options, renamed = body.options(), {"logprobs": "top_logprobs"}
    if body.max_completion_tokens is not None:
        if body.max_tokens is not None:
            raise HttpError(400, "max_completion_tokens and max_tokens are both given: give one", param="max_tokens")
        renamed["max_tokens"] = "max_completion_tokens"
    if body.top_logprobs and not body.logprobs:
        raise HttpError(400, "top_logprobs needs logprobs: give logprobs true", param="top_logprobs")
    room = service.engine.face.max_prompt_tokens
    if body.logprobs:
        options["logprobs"] = told = body.top_logprobs or 0
        most = MOST_LOGPROBS // max(1, options.get("n", 1)) // (1 + max(0, told))
        room = max(1, min(room, most))  # as many tokens as one answer may tell of
    given = (body.max_completion_tokens, body.max_tokens, room)
    options["max_tokens"] = next(value for value in given if value is not None)
    if body.response_format is not None and (form := body.response_format.form()) is not None:
        if body.json_schema is not None:
            raise HttpError(400, "response_format and json_schema are both given: give one", param="json_schema")
        options["json_schema"] = form
        renamed["json_schema"] = "response_format"
    return options, renamed


async def _prompt(body: ChatRequest, service: Service) -> Prompt:
    if not body.messages:
        raise HttpError(400, "messages is empty: give at least one", param="messages")
    face = service.engine.face
    if (count := len(body.messages)) > (longest := face.max_prompt_tokens):
        raise too_long("messages", f"the {count} messages have at least so many", longest)
    messages = [message.message() for message in body.messages]
    try:
        return await asyncio.to_thread(face.chat, messages)
    except AdjudgeError as error:
        raise HttpError(400, str(error), param="messages") from error
