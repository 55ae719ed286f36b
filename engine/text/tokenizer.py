"""Text to token ids and back; untrusted text can never become a special token."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain
from operator import index
from threading import Lock
from typing import Any

from tokenizers import Tokenizer as BackendTokenizer
from tokenizers import decoders

from adjudge.engine.checking import shown
from adjudge.engine.errors import ModelUnsupported, PromptError
from adjudge.engine.models.fingerprints import digest
from adjudge.engine.text.chat_template import ChatTemplate
from adjudge.engine.text.prompt import Message, Prompt, Segment, mark_data, place_data
from adjudge.engine.text.signs import ids_of, is_sign, without_signs
from adjudge.engine.threads.forked import Renewed
from adjudge.engine.tokens import Tokens
from adjudge.engine.waiting import check_wanted

_LONE = re.compile("[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]")
"""A surrogate without its other half. Python's own decoder takes a second for a million of them."""

ELLIPSIS = "\n[...]\n"
"""Stands where the middle of a text was cut out."""

KEPT = 16_384
"""Characters of the longest text of which many are kept as tokens; of longer ones, which hold memory, the last few."""
LONG = 1 << 18
"""Characters beyond which a text is read in pieces, as far as there is use for it: the library takes 400 times the
memory of a text, and half a minute for ten megabytes of some. Tokens do not reach from one piece into the next."""
PIECE = 1 << 16
NEAR = 1 << 12
"""Characters of a piece, and of its end in which a blank is looked for."""
LEADS = ("\n", "]")
"""What stands before a text for a tokenizer that puts a blank before whatever it is given: hardly a token holds either
and more. To some the first is a blank as well."""
LATER = "-2"
"""Ends the fingerprints of weights whose tokenizer gives other tokens than it gave before."""


class Tokenizer:
    """A transformers fast tokenizer, with a second one beside it that knows none of its signs, for untrusted text.

    `rows` is how many tokens the model has embeddings of, where that is known: some tokenizers know more. A `bytewise`
    one decodes each byte whatever stands before it.
    """

    def __init__(self, tokenizer: Any, rows: int | None = None) -> None:
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if not isinstance(backend, BackendTokenizer):
            raise ModelUnsupported(
                f"{type(tokenizer).__name__} has no fast (tokenizer.json) form, which safe prompts rest on: save one"
                " with AutoTokenizer.from_pretrained(…, use_fast=True).save_pretrained(…)"
            )
        added = backend.get_added_tokens_decoder()
        self.inner = tokenizer
        known = ids_of(tokenizer)
        self.vocab_size = known if rows is None else min(rows, known)
        self._trusted = BackendTokenizer.from_str(backend.to_str())
        self._trusted.no_truncation()
        self._plain = BackendTokenizer.from_str(without_signs(tokenizer))
        self._special = frozenset(token for token, one in added.items() if is_sign(one.content, one.special))
        unknown = {tokenizer.unk_token_id} - {tokenizer.bos_token_id, tokenizer.eos_token_id}
        self._powerful = self._special - unknown  # what stands for a character that it does not know has no power
        self._bos, self._end = _frame(tokenizer)
        self._template = ChatTemplate(tokenizer, self.decode(self._bos))
        self._kept, self._kept_few = (lru_cache(maxsize=count)(self._encode) for count in (512, 4))
        self._reading = Renewed(Lock)  # one long text at a time
        self._leads = _leads(self._plain)
        self._openers = frozenset(
            token for token in added.keys() - unknown if self._leads and self._opens(token, added[token].content)
        )
        self.bytewise = isinstance(backend.decoder, decoders.ByteLevel)
        self._before = () if self.bytewise else self.encode("a", False)[-1:]  # others take the first space away
        self._is_later = bool(self._leads) or len(self._special) < len(added)

    @property
    def fingerprint(self) -> str:
        """64 hex digits that change with its tokens and with the template of its chats."""
        return digest(self._trusted.to_str(), json.dumps(getattr(self.inner, "chat_template", None)))

    def fingerprint_of(self, weights: str) -> str:
        """The fingerprint of weights that are asked in its tokens, which keeps answers apart from those to others."""
        return weights + LATER if self._is_later and not weights.endswith(LATER) else weights

    def encode(self, text: str, trusted: bool, most: int | None = None, after: Tokens = ()) -> Tokens:
        """The tokens of a text that stands `after` others, and nothing before or after it; see `Segment` for `trusted`.

        Of a long text that has more than `most` tokens those that it begins with, more than so many.
        """
        inside = self._is_inside(after)
        if len(text) > LONG and not trusted:
            return self._beginning(text, most, inside)
        encode = self._kept if len(text) <= KEPT else self._kept_few
        return encode(text, trusted, inside)

    def _is_inside(self, after: Tokens) -> bool:
        """Whether what stands after these tokens goes on from a text, where that makes a difference; else it begins."""
        return bool(self._leads) and after not in ((), self._bos) and after[-1] not in self._openers

    def _opens(self, token: int, content: str) -> bool:
        """Whether a text has the tokens that it has by itself after an added one as well."""
        return _ids(self._trusted, f"{content}a") == (token, *_ids(self._plain, "a"))

    def _beginning(self, text: str, most: int | None, inside: bool) -> Tokens:
        """The tokens of a long text from its first on, all of them or more than `most`."""
        ids: list[int] = []
        with self._reading.here:
            for place, piece in enumerate(_pieces(text)):
                if most is not None and len(ids) > most:
                    break
                ids += self._encode(piece, False, inside or place > 0)
        return tuple(ids)

    def _ending(self, text: str, most: int) -> Tokens:
        """The tokens of a long text up to its last, all of them or more than `most`."""
        ids, pieces = Tokens(), list(_pieces(text))
        with self._reading.here:
            while pieces and len(ids) <= most:
                piece = pieces.pop()
                ids = self._encode(piece, False, bool(pieces)) + ids
        return ids

    def _encode(self, text: str, trusted: bool, inside: bool) -> Tokens:
        """Token ids of one text by itself or `inside` another; in untrusted text special-token strings are plain."""
        check_wanted()
        text = well_formed(text)
        ids = self._read(text, trusted, inside)
        if trusted or self._powerful.isdisjoint(ids):
            return ids
        pieces = (self._read(character, False, inside or place > 0) for place, character in enumerate(text))
        return tuple(token for piece in pieces for token in piece if token not in self._powerful)

    def _read(self, text: str, trusted: bool, inside: bool) -> Tokens:
        backend = self._trusted if trusted else self._plain
        for lead, before in self._leads if inside else ():
            ids = _ids(backend, lead + text)
            if ids[: len(before)] == before:
                return ids[len(before) :]
        return _ids(backend, text)

    def segment(self, segment: Segment, most: int | None = None, after: Tokens = ()) -> Tokens:
        """Token ids of a segment, shortened to its limit if it has one; see `encode` for `most` and `after`."""
        limit = segment.limit
        if segment.trusted or limit is None:
            return self.encode(segment.text, segment.trusted, most, after)
        ids = self.encode(segment.text, False, limit, after)
        if len(ids) <= limit:
            return ids
        if segment.cut == "tail":
            return ids[:limit]
        ending = ids if len(segment.text) <= LONG else self._ending(segment.text, limit)
        if segment.cut == "head":
            return ending[len(ending) - limit :]
        gap = self.encode(ELLIPSIS, True, after=ids)
        kept = max(0, limit - len(gap))
        return ids[: kept - kept // 2] + gap[:limit] + ending[len(ending) - kept // 2 :]

    def segments(self, prompt: Prompt, most: int | None = None) -> list[Tokens]:
        """Token ids of every segment of a prompt, each after those before it; see `encode` for `most`."""
        before, parts, matter = Tokens(), list[Tokens](), len(self._bos) + 1  # so many of the last that stand before
        for segment in prompt.segments:
            parts.append(self.segment(segment, most, before))
            before = (before + parts[-1][-matter:])[-matter:]
        return parts

    def prompt(self, prompt: Prompt | str | Sequence[int], most: int | None = None, *, ended: bool = False) -> Tokens:
        """Token ids of a prompt; a plain string is one untrusted segment after the model's own leading tokens.

        With `ended` those stand behind a plain string that the tokenizer ends a text with, as some of models that embed
        do. Of a prompt that has more than `most` there may be fewer than all, but more than so many: what is too long
        is not read to its end. Raises PromptError for a prompt without tokens and for an id outside the vocabulary.
        """
        check_wanted()
        if isinstance(prompt, str):
            ids = self._bos + self.encode(prompt, False, most) + (self._end if ended else ())
        elif isinstance(prompt, Prompt):
            ids = tuple(chain.from_iterable(self.segments(prompt, most)))
        else:
            try:
                if isinstance(prompt, bytes | bytearray):  # whose numbers are no token ids
                    raise TypeError
                ids = tuple(map(index, prompt))
            except (TypeError, ValueError) as error:
                mend = "give a string, a Prompt (engine.chat makes one of messages) or token ids"
                raise PromptError(f"{shown(prompt)} is no prompt: {mend}") from error
        if not ids:
            raise PromptError("the prompt is empty: give at least one token")
        if min(ids) < 0 or max(ids) >= self.vocab_size:
            bad = next(token for token in ids if not 0 <= token < self.vocab_size)
            raise PromptError(f"token id {bad} is outside the vocabulary of {self.vocab_size}")
        return ids

    def chat(self, messages: Sequence[Message], answer: str = "", *, thinks: bool = False) -> Prompt:
        """The model's chat template around `messages`, then `answer` (trusted) as the beginning of its reply.

        Untrusted segments never pass through the template. Thinking modes are switched off (a thought that the template
        begins is closed, and a reply that has channels begins in that of its text), and a template that writes down
        the day has it the same every day. A model without a template gets the messages as paragraphs,
        after its own leading tokens; one that refuses a system message, or drops it, gets it at the head of the first
        user message. With `thinks` the reply begins as the template has a thinking model begin it.
        """
        check_wanted()
        texts, data = mark_data([message.content for message in messages])
        rendered = self._template.opened([message.role for message in messages], texts, thinks=thinks)
        return place_data(rendered + answer, data)

    def transcript(self, messages: Sequence[Message]) -> Prompt:
        """The model's chat template around `messages`, the last of which is closed as the template closes it.

        Untrusted segments never pass through the template. Raises ModelUnsupported for a model without a template.
        """
        texts, data = mark_data([message.content for message in messages])
        return place_data(self._template.closed([message.role for message in messages], texts), data)

    def is_special(self, token: int) -> bool:
        """Whether a token is no piece of text but a sign of the model's own, as the one that ends a text."""
        return token in self._special

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids, special tokens included."""
        return self._trusted.decode(list(ids), skip_special_tokens=False)  # without a tokenizer's own clean-up

    def decode_on(self, ids: Sequence[int]) -> str:
        """The text of token ids that go on from others: with the space that stands first in it, where one does."""
        return (
            self.decode([*self._before, *ids])[len(self.decode(self._before)) :] if self._before else self.decode(ids)
        )


def _pieces(text: str) -> Iterator[str]:
    """A long text in pieces that end before a blank, where there is one near."""
    text, start = well_formed(text), 0
    while start < len(text):
        end = start + PIECE
        if end < len(text):
            near = max(text.rfind(blank, end - NEAR, end) for blank in (" ", "\n"))
            end = near if near > start else end
        yield text[start:end]
        start = end


def _ids(backend: BackendTokenizer, text: str) -> Tokens:
    if len(text) <= KEPT:
        return tuple(backend.encode(text, add_special_tokens=False).ids)
    [encoded] = backend.encode_batch([text], add_special_tokens=False)  # which lets other threads run meanwhile
    return tuple(encoded.ids)


def well_formed(text: str) -> str:
    """`text` with surrogate pairs joined and lone surrogates replaced by U+FFFD, so that it can be encoded at all."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return _LONE.sub("\ufffd", text).encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    return text


def _frame(tokenizer: Any) -> tuple[Tokens, Tokens]:
    """What the tokenizer puts before a text by default, as a begin-of-sequence token, and behind it."""
    bare = tokenizer.encode("a", add_special_tokens=False)
    full = tokenizer.encode("a", add_special_tokens=True)
    for start in range(len(full) - len(bare) + 1):
        if full[start : start + len(bare)] == bare:
            return tuple(full[:start]), tuple(full[start + len(bare) :])
    return (), ()


def _leads(backend: BackendTokenizer) -> tuple[tuple[str, Tokens], ...]:
    """The leads, with their tokens, behind which a text has other tokens than by itself: most tokenizers have none."""
    alone, leads = _ids(backend, "a"), []
    for lead in LEADS:
        before, both = _ids(backend, lead), _ids(backend, f"{lead}a")
        if before and both[: len(before)] == before and both[len(before) :] not in ((), alone):
            leads.append((lead, before))
    return tuple(leads)
