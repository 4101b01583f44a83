"""What stands in requests and answers (docs/reference/engine-wire.md): read once, into values that cannot be wrong."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import struct
from dataclasses import dataclass
from typing import Any

from sampling import Sampling

PROTOCOL = "turnstile.engine/1"


class Refused(Exception):
    """A request that cannot be served, with the word and the status for it."""

    def __init__(self, message: str, code: str = "invalid_request", status: int = 400) -> None:
        super().__init__(message)
        self.code = code
        self.status = status

    @property
    def body(self) -> dict[str, Any]:
        return {"error": {"code": self.code, "message": str(self)}}


@dataclass(frozen=True)
class Limits:
    """What a request has to fit into."""

    vocab_size: int
    context_length: int
    stop_ids: tuple[int, ...]


@dataclass(frozen=True)
class Asked:
    """`POST /generate`."""

    input_ids: list[int]
    images: list[bytes]
    sampling: Sampling
    max_tokens: int | None
    stop_ids: frozenset[int]
    is_stream: bool


_KNOWN = {
    *("input_ids", "images", "max_tokens", "temperature", "top_p", "seed", "stop_ids", "banned_ids", "logit_bias"),
    *("stream", "request_id"),
}


def asked(body: bytes, limits: Limits) -> Asked:
    """A request's body.

    Raises: Refused, naming the field: nothing that is asked for is left out without a word.
    """
    try:
        fields = json.loads(body)
    except ValueError as problem:
        raise Refused(f"the body is not JSON: {problem}") from problem
    if not isinstance(fields, dict):
        raise Refused("the body is no JSON object")
    if strange := fields.keys() - _KNOWN:
        raise Refused(f"`{sorted(strange)[0]}` is no field of a request; there are {', '.join(sorted(_KNOWN))}")
    input_ids = _ids(fields, "input_ids", limits)
    if not input_ids:
        raise Refused("`input_ids` is empty")
    stop_ids = limits.stop_ids if fields.get("stop_ids") is None else tuple(_ids(fields, "stop_ids", limits))
    return Asked(
        input_ids,
        [_image(each) for each in fields.get("images") or ()],
        _sampling(fields, limits),
        None if fields.get("max_tokens") is None else int(_number(fields, "max_tokens", 1, 1, 2**31)),
        frozenset(stop_ids),
        bool(fields.get("stream", False)),
    )


def room(prompt_length: int, max_tokens: int | None, limits: Limits) -> int:
    """How long an answer may become. Raises: Refused `context_length_exceeded` if the prompt leaves no room."""
    left = limits.context_length - prompt_length
    if left < 1:
        raise Refused(
            f"the prompt has {prompt_length} tokens, images in full, and the context holds {limits.context_length}",
            "context_length_exceeded",
        )
    return left if max_tokens is None else min(left, max_tokens)


def ids_sha256(ids: list[int]) -> str:
    """sha256 of ids as little-endian int32: how a prompt that was run is named."""
    return hashlib.sha256(struct.pack(f"<{len(ids)}i", *ids)).hexdigest()


def event(fields: dict[str, Any]) -> bytes:
    """A server-sent event."""
    return b"data: " + json.dumps(fields, allow_nan=False).encode() + b"\n\n"


def _sampling(fields: dict[str, Any], limits: Limits) -> Sampling:
    biased = fields.get("logit_bias") or ()
    try:
        logit_bias = tuple((int(token_id), float(bias)) for token_id, bias in biased)
    except (TypeError, ValueError) as problem:
        raise Refused("`logit_bias` is no list of pairs of an id and a number") from problem
    _refuse_foreign([token_id for token_id, _ in logit_bias], "logit_bias", limits)
    seed = fields.get("seed")
    if seed is not None and not isinstance(seed, int):
        raise Refused("`seed` is no integer")
    return Sampling(
        temperature=_number(fields, "temperature", 1.0, 0.0, 100.0),
        top_p=_number(fields, "top_p", 1.0, 1e-6, 1.0),
        seed=seed,
        banned_ids=tuple(_ids(fields, "banned_ids", limits)),
        logit_bias=logit_bias,
    )


def _ids(fields: dict[str, Any], name: str, limits: Limits) -> list[int]:
    ids = fields.get(name) or []
    if not isinstance(ids, list) or not all(type(each) is int for each in ids):
        raise Refused(f"`{name}` is no list of integers")
    _refuse_foreign(ids, name, limits)
    return ids


def _refuse_foreign(ids: list[int], name: str, limits: Limits) -> None:
    wrong = next((each for each in ids if not 0 <= each < limits.vocab_size), None)
    if wrong is not None:
        raise Refused(f"`{name}` has {wrong}, and the model has {limits.vocab_size} ids")


def _number(fields: dict[str, Any], name: str, default: float, lowest: float, highest: float) -> float:
    value = fields.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not lowest <= value <= highest:
        raise Refused(f"`{name}` is {value!r}: give a number from {lowest:g} to {highest:g}")
    return value


def _image(text: object) -> bytes:
    try:
        # `validate`: other alphabets and stray characters would become another image without a word.
        return base64.b64decode(text, validate=True) if isinstance(text, str) else b""
    except binascii.Error as problem:
        raise Refused(f"`images` has a text that is not base64: {problem}") from problem
