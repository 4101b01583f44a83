"""Text to ids and back, with the `tokenizers` library and nothing added.

No call here ever adds a begin-of-sequence token: chat templates print it themselves, and a second one is a
well-known fault (vllm-project/vllm#9519). Text of special tokens is recognised as such, as engines do on their
chat route.
"""

from __future__ import annotations

import copy
import enum
import functools
import hashlib
import itertools
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias, assert_never, cast

import msgspec
import tokenizers

from turnstile.errors import CallerError
from turnstile.templates.files import ModelFilesError
from turnstile.templates.spellings import any_of
from turnstile.tokens import IdRun, join

_LONG = 4096
"""Characters from which on the library's batch call is the faster one; it also lets other threads run."""
_SPACE_MARK = "\u2581"
"""How SentencePiece vocabularies write a space."""

_HTML_TAG = re.compile(
    "</?(?:a|b|blockquote|caption|code|dd|div|dl|dt|em|h[1-6]|hr|i|img|li|ol|p|pre|q|s|span|strong|sub|sup|table|tbody"
    "|td|tfoot|th|thead|tr|tt|u|ul)>"
)

FastEncode: TypeAlias = Callable[[str], IdRun]
"""Another tokenizer: a text's ids, special tokens recognised, nothing added. Raises: ValueError where it cannot."""


class AddedToken(msgspec.Struct, frozen=True):
    """A token that is found in text before anything else is."""

    id: int
    text: str
    special: bool
    """Whether engines hide it from text."""
    lstrip: bool
    """Whether it swallows blanks before it."""
    rstrip: bool
    """Whether it swallows blanks behind it; its offsets then include them."""
    normalized: bool = False
    """Whether it is looked for in the normalised text, so that other texts than its own may become it."""


class Encoded(msgspec.Struct, frozen=True):
    """Ids and where each stands in the text. Shapes: ids [T], offsets [T]."""

    ids: IdRun
    offsets: tuple[tuple[int, int], ...]
    """Characters [start, end). Ids that share a character (bytes of one emoji) all have its span."""


class _Spelling(enum.Enum):
    """How a vocabulary writes bytes as text."""

    BYTE_LEVEL = "byte-level"
    """Every byte is one printable character (GPT-2's table)."""
    BYTE_FALLBACK = "byte-fallback"
    """Text as it is, spaces marked; bytes that have no piece as `<0xAB>` (SentencePiece)."""


class Tokenizer:
    """A tokenizer without side effects; safe to share between threads. Satisfies `tokens.Vocabulary`."""

    def __init__(self, inner: tokenizers.Tokenizer, sha256: str) -> None:
        """Wrap a loaded tokenizer; `from_json` is the way in.

        Raises: ModelFilesError if its decoder is of a kind whose bytes cannot be told token by token.
        """
        # A post-processor adds tokens of its own and shifts offsets; neither may happen to a rendered prompt.
        inner.post_processor = None
        inner.no_truncation()
        inner.no_padding()
        self._inner = inner
        self._sha256 = sha256
        self._spelling = _spelling_of(inner)
        self.added = tuple(
            AddedToken(token_id, token.content, token.special, token.lstrip, token.rstrip, token.normalized)
            for token_id, token in sorted(inner.get_added_tokens_decoder().items())
        )
        self._added_by_id = {token.id: token for token in self.added}
        self._added_by_text = {token.text: token.id for token in self.added}
        self._size = 1 + max(inner.get_vocab(with_added_tokens=True).values(), default=-1)
        self._bytes_by_id: dict[int, bytes] = {}
        self._fast: FastEncode | None = None

    @classmethod
    def from_json(cls, text: str) -> Tokenizer:
        """Load the text of a `tokenizer.json`.

        Raises: ModelFilesError if the `tokenizers` library cannot read it.
        """
        try:
            inner = tokenizers.Tokenizer.from_str(text)
        except Exception as error:
            raise ModelFilesError(
                f"tokenizer.json cannot be read: {str(error)[:200]}",
                "Give the file that the model was published with, or update the `tokenizers` package",
            ) from error
        return cls(inner, hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest())

    def encoding_with(self, fast: FastEncode) -> Tokenizer:
        """The same tokenizer, whose texts another one encodes where it can.

        Only for one that gives the same ids (check 12 of the certificate). Places, which it need not know, are counted
        from the bytes of its ids; where those are not the text's own bytes, this tokenizer encodes it itself.
        """
        faster = copy.copy(self)
        faster._fast = fast
        return faster

    @property
    def sha256(self) -> str:
        """Of the JSON text that it was loaded from."""
        return self._sha256

    @property
    def size(self) -> int:
        """Number of ids, unused ones between them included: one more than the highest."""
        return self._size

    @functools.cached_property
    def added_ids(self) -> frozenset[int]:
        """Ids of all added tokens."""
        return frozenset(self._added_by_id)

    @functools.cached_property
    def special_text(self) -> re.Pattern[str] | None:
        """Finds the text of a special token; None if there is none."""
        return any_of(token.text for token in self.added if token.special)

    @functools.cached_property
    def control_ids(self) -> frozenset[int]:
        """Ids of control tokens: those that only a template or the model writes where a client's text stays text."""
        return frozenset(token.id for token in self.added if _is_control(token))

    @functools.cached_property
    def control_text(self) -> re.Pattern[str] | None:
        """Finds the text of a control token; None if there is none."""
        return any_of(token.text for token in self.added if _is_control(token))

    def encode_as_text(self, text: str) -> Encoded:
        """The ids of a text with no control token found in it, and the place of each id.

        Raises: CallerError as `encode` does.
        """
        encoded = self._twin.encode_with_offsets(text)
        if self.control_ids.isdisjoint(encoded.ids):
            return encoded
        # The vocabulary has the token's text as an ordinary piece too: no part of the text may hold the whole of it.
        edges = [0, *self._cuts(text), len(text)]
        parts = [(start, self._twin.encode_with_offsets(text[start:end])) for start, end in itertools.pairwise(edges)]
        return Encoded(
            join(part.ids for _, part in parts),
            tuple((start + at, start + end) for start, part in parts for at, end in part.offsets),
        )

    def _cuts(self, text: str) -> Iterator[int]:
        at = 0
        while self.control_text is not None and (found := self.control_text.search(text, at)) is not None:
            at = found.start() + 1
            yield at

    @functools.cached_property
    def _twin(self) -> Tokenizer:
        """The same vocabulary, whose control tokens are all special and not looked for."""
        described = json.loads(self._inner.to_str())
        for token in described["added_tokens"]:
            # The library's switch passes over special tokens alone; `<think>` and `<tool_call>` mostly are none.
            token["special"] = token["id"] in self.control_ids
        twin = tokenizers.Tokenizer.from_str(json.dumps(described))
        twin.encode_special_tokens = True
        return Tokenizer(twin, self._sha256)

    def encode(self, text: str) -> IdRun:
        """The ids of a text, special tokens recognised, nothing added.

        Raises: CallerError if the text holds half of a surrogate pair, which has no bytes.
        """
        if (ids := self._faster(text)) is not None:
            return ids
        if len(text) < _LONG:
            return IdRun.of(self._encoding(text).ids)
        try:
            # The single call holds Python's lock while it runs: 0.9 s for 200,000 ids, in which no event loop turns.
            return IdRun.of(self._inner.encode_batch_fast([text], add_special_tokens=False)[0].ids)
        except TypeError as error:
            raise _half_a_pair(text) from error

    def encode_with_offsets(self, text: str) -> Encoded:
        """The same with the place of each id. Raises: CallerError as `encode` does."""
        if (ids := self._faster(text)) is not None and (placed := self._placed(text, ids)) is not None:
            return placed
        encoding = self._encoding(text)
        return Encoded(IdRun.of(encoding.ids), tuple(encoding.offsets))

    def decode(self, ids: IdRun) -> str:
        """The text of ids, special tokens included; broken UTF-8 becomes U+FFFD.

        It is the joined `token_bytes` and nothing else: a leading space that SentencePiece decoders strip from
        whole texts stays, since a run of ids mostly begins in mid-text.
        """
        return b"".join(map(self.token_bytes, ids)).decode("utf-8", "replace")

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that an id stands for; none for an id that has no token."""
        known = self._bytes_by_id.get(token_id)
        if known is None:
            known = self._bytes_by_id[token_id] = self._spelled_bytes(token_id)
        return known

    def is_special(self, token_id: int) -> bool:
        """Whether engines hide the token from text."""
        token = self._added_by_id.get(token_id)
        return token is not None and token.special

    def id_of(self, text: str) -> int | None:
        """The id of the one token whose text is exactly this, added tokens first; None if there is none."""
        added = self._added_by_text.get(text)
        return added if added is not None else self._inner.token_to_id(self._spelled(text))

    def _faster(self, text: str) -> IdRun | None:
        """What the other tokenizer says; None if there is none, or it cannot."""
        if self._fast is None:
            return None
        try:
            return self._fast(text)
        except ValueError:
            # Half of a surrogate pair, or more than its pattern engine allows: the reference decides.
            return None

    def _placed(self, text: str, ids: IdRun) -> Encoded | None:
        """Ids with their places, if their bytes are the text's: no normalisation, no swallowed blanks."""
        # Looked up without a call each: an id's bytes are known from its second use on.
        known = list(map(self._bytes_by_id.get, ids.tolist()))
        pieces = (
            [
                self.token_bytes(token_id) if piece is None else piece
                for token_id, piece in zip(ids.tolist(), known, strict=True)
            ]
            if None in known
            else cast("list[bytes]", known)
        )
        data = text.encode()
        if b"".join(pieces) != data or not all(pieces):
            return None
        edges = itertools.pairwise([0, *itertools.accumulate(map(len, pieces))])
        if len(data) == len(text):
            return Encoded(ids, tuple(edges))
        # How many characters have begun up to and with each byte: those that are no continuation of one.
        begun = list(itertools.accumulate(byte & 0xC0 != 0x80 for byte in data))
        return Encoded(ids, tuple((begun[start] - 1, begun[end - 1]) for start, end in edges))

    def _encoding(self, text: str) -> tokenizers.Encoding:
        try:
            return self._inner.encode(text, add_special_tokens=False)
        except TypeError as error:
            raise _half_a_pair(text) from error

    def _spelled_bytes(self, token_id: int) -> bytes:
        token = self._added_by_id.get(token_id)
        if token is not None and (token.special or self._spelling is _Spelling.BYTE_LEVEL):
            return token.text.encode()
        piece = self._inner.id_to_token(token_id) if 0 <= token_id < self._size else None
        if piece is None:
            return b""
        match self._spelling:
            case _Spelling.BYTE_LEVEL:
                # A piece with a character outside the table was put into the vocabulary as it is.
                return bytes(map(_BYTE_OF.__getitem__, piece)) if _BYTE_OF.keys() >= set(piece) else piece.encode()
            case _Spelling.BYTE_FALLBACK:
                is_byte = token is None and len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">")
                return bytes.fromhex(piece[3:5]) if is_byte else piece.replace(_SPACE_MARK, " ").encode()
            case _:
                assert_never(self._spelling)

    def _spelled(self, text: str) -> str:
        match self._spelling:
            case _Spelling.BYTE_LEVEL:
                return "".join(map(_CHARACTER_OF.__getitem__, text.encode("utf-8", "surrogatepass")))
            case _Spelling.BYTE_FALLBACK:
                return text.replace(" ", _SPACE_MARK)
            case _:
                assert_never(self._spelling)


def _is_control(token: AddedToken) -> bool:
    """A token of one character cannot be written otherwise; blanks and tags of HTML are ordinary text (Gemma)."""
    is_ordinary = not token.text.replace(_SPACE_MARK, " ").strip() or _HTML_TAG.fullmatch(token.text) is not None
    return len(token.text) > 1 and (token.special or not is_ordinary)


def _half_a_pair(text: str) -> CallerError:
    at = next((at for at, char in enumerate(text) if "\ud800" <= char <= "\udfff"), 0)
    return CallerError(
        f"Character {at} of the rendered prompt is half of a surrogate pair, which has no bytes",
        "Send text that is valid Unicode",
    )


def _spelling_of(inner: tokenizers.Tokenizer) -> _Spelling:
    decoder = inner.decoder
    steps = _step_names(json.loads(decoder.__getstate__())) if decoder is not None else set[str]()
    if "ByteLevel" in steps:
        return _Spelling.BYTE_LEVEL
    if steps and steps <= {"ByteFallback", "Metaspace", "Replace", "Fuse", "Strip"}:
        return _Spelling.BYTE_FALLBACK
    named = ", ".join(sorted(steps)) or "no decoder"
    raise ModelFilesError(
        f"tokenizer.json decodes with {named}, whose tokens have no bytes of their own",
        "Use a model with a byte-level or SentencePiece vocabulary",
    )


def _step_names(decoder: dict[str, Any]) -> set[str]:
    if decoder.get("type") == "Sequence":
        return {name for step in cast("list[dict[str, Any]]", decoder["decoders"]) for name in _step_names(step)}
    return {str(decoder.get("type"))}


def byte_characters() -> dict[int, str]:
    """The character that stands for each byte in a byte-level vocabulary (GPT-2's `bytes_to_unicode`)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = (byte for byte in range(256) if byte not in printable)
    return {byte: chr(byte) for byte in printable} | {byte: chr(0x100 + at) for at, byte in enumerate(others)}


_CHARACTER_OF = byte_characters()
_BYTE_OF = {character: byte for byte, character in _CHARACTER_OF.items()}
