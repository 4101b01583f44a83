"""Checks 4, 12 and 13 of a certificate: stop tokens, and whether faster or foreign engines give the same ids."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

import msgspec

from turnstile.conversation import JsonText, Message
from turnstile.templates.certificate import Parity, StopToken
from turnstile.templates.checks_shapes import NOW
from turnstile.templates.faster_render import FastRender
from turnstile.templates.render import GenerationPrompt, RenderRequest, TemplateFailed
from turnstile.templates.served import Served
from turnstile.templates.shapes import PAST, SHAPES
from turnstile.templates.tokenizer import FastEncode
from turnstile.tokens import IdRun, first_difference

EngineTokenize: TypeAlias = Callable[[tuple[Message, ...]], Sequence[int]]
"""An engine's own ids for messages, no tools, with its generation prompt. Raises: any exception where it cannot."""

TOKENIZER = "fast tokenizer"
TEMPLATE_ENGINE = "fast template engine"
FUZZ_TEXTS = 500
_FUZZ_PIECES: tuple[str, ...] = (
    "a", " the", "\n", "\n\n", "  ", "\t", "\r\n", "0", "2024", "'s", "don't", "é", "e\u0301", "ß", "文件", "を",
    "한국", "🙂", "👩\u200d🚀", "\u00a0", "\u200b", "\u0000", "\ufeff", "{", '"k": ', "}", "</", "<|", "|>", "<think>",
    "_x", "Plutor",
)  # fmt: skip


class Faster(msgspec.Struct, frozen=True):
    """The faster engines that are at hand; None: not installed, or not usable."""

    encode: FastEncode | None = None
    render: FastRender | None = None
    unusable: tuple[tuple[str, str], ...] = ()
    """(TOKENIZER or TEMPLATE_ENGINE, why) for one that is installed and cannot be used."""
    versions: tuple[str, ...] = ()
    """What is installed: a certificate is about these."""


def check_stop_tokens(served: Served) -> Iterator[StopToken]:
    """Each stop token: is it one added token, found again in its own text?"""
    for token_id in sorted(served.stop_ids):
        text = served.tokenizer.token_bytes(token_id).decode("utf-8", "replace")
        yield StopToken(token_id, text, token_id in served.stop_ids_inferred, _stop_problem(served, token_id, text))


def _stop_problem(served: Served, token_id: int, text: str) -> str:
    if not text:
        return "the vocabulary has no such id"
    if token_id not in served.added_ids:
        return "it is a piece of ordinary text"
    ids = served.tokenizer.encode(text).tolist()
    return "" if ids == [token_id] else f"its text is encoded as {ids}"


def blank_eaters(served: Served) -> tuple[str, ...]:
    """Added tokens that swallow the blanks beside them, so that their places in a text include those."""
    return tuple(token.text for token in served.tokenizer.added if token.lstrip or token.rstrip)


def normalised(served: Served) -> tuple[str, ...]:
    """Control tokens that are looked for in the normalised text, so that other texts may become them."""
    return tuple(token.text for token in served.tokenizer.added if token.special and token.normalized)


def check_faster(served: Served, faster: Faster, renders: Iterable[str], kwargs: JsonText = "{}") -> tuple[Parity, ...]:
    """The faster engines against the reference.

    Args:
        served: the model, served by the reference.
        faster: what is at hand.
        renders: whole renders to encode besides fuzz texts.
        kwargs: template arguments, a JSON object.
    """
    unusable = dict(faster.unusable)
    return (
        _same_ids(served, faster.encode, renders)
        if faster.encode is not None
        else _absent(TOKENIZER, unusable.get(TOKENIZER)),
        _same_texts(served, faster.render, kwargs)
        if faster.render is not None
        else _absent(TEMPLATE_ENGINE, unusable.get(TEMPLATE_ENGINE)),
    )


def _absent(name: str, why: str | None) -> Parity:
    return Parity(name, "not installed", 0, "") if why is None else Parity(name, "not run", 0, why)


def _same_ids(served: Served, encode: FastEncode, renders: Iterable[str]) -> Parity:
    faster = served.tokenizer.encoding_with(encode)
    texts = (*fuzz_texts(tuple(token.text for token in served.tokenizer.added)), *renders)
    for text in texts:
        reference = served.tokenizer.encode_with_offsets(text)
        try:
            difference = first_difference(reference.ids, encode(text))
        except Exception as failure:  # noqa: BLE001 - a foreign tokenizer may raise anything, which is its answer
            return Parity(TOKENIZER, "different", len(texts), f"it fails on {text[:60]!r}: {str(failure)[:100]}")
        if difference is not None:
            return Parity(TOKENIZER, "different", len(texts), f"from id {difference} on in {text[:60]!r}")
        if faster.encode_with_offsets(text) != reference:
            return Parity(TOKENIZER, "different", len(texts), f"in the places of the ids in {text[:60]!r}")
    return Parity(TOKENIZER, "same", len(texts), "")


def _same_texts(served: Served, render: FastRender, kwargs: JsonText) -> Parity:
    requests = tuple(_requests(served, kwargs))
    for request in requests:
        ours, theirs = _or_failure(served.template.render, request), _or_failure(render, request)
        if ours != theirs:
            what = "it fails" if theirs is None else "the template raises" if ours is None else "another text"
            return Parity(TEMPLATE_ENGINE, "different", len(requests), f"{what} with {len(request.messages)} messages")
    return Parity(TEMPLATE_ENGINE, "same", len(requests), "")


def _requests(served: Served, kwargs: JsonText) -> Iterator[RenderRequest]:
    for shape in SHAPES:
        tools = tuple(tool.declaration for tool in shape.tools)
        messages = (*shape.history_M, shape.answer, *shape.new_M)
        for generation in GenerationPrompt:
            yield RenderRequest(
                messages=messages,
                tools=tools,
                kwargs=kwargs,
                generation=generation,
                now=NOW,
                form=served.facts.form,
            )


def _or_failure(render: FastRender, request: RenderRequest) -> str | None:
    """The text; None if the template raises."""
    try:
        return render(request)
    except Exception:  # noqa: BLE001 - a foreign engine may raise anything, which is its answer
        return None


def fuzz_texts(markers: tuple[str, ...]) -> Iterator[str]:
    """Odd texts, always the same: pieces of many scripts, blanks and markers, strung together."""
    pieces = (*_FUZZ_PIECES, *markers[:16])
    state = 1
    for length in itertools.islice(itertools.cycle(range(1, 24)), FUZZ_TEXTS):
        text: list[str] = []
        for _ in range(length):
            # A linear congruential generator: the same texts on every machine.
            state = (state * 1103515245 + 12345) % (1 << 31)
            text.append(pieces[(state >> 8) % len(pieces)])
        yield "".join(text)


def check_engine(served: Served, tokenize: EngineTokenize | None) -> Parity:
    """An engine's own prompt ids against ours."""
    name = "engine"
    if tokenize is None:
        return Parity(name, "not run", 0, "no engine was asked")
    compared = 0
    for messages in (PAST, PAST[1:]):
        request = RenderRequest(messages=messages, now=NOW, form=served.facts.form)
        try:
            ours = served.tokenizer.encode(served.template.render(request))
        except TemplateFailed:
            continue
        compared += 1
        try:
            difference = first_difference(ours, IdRun.of(tokenize(messages)))
        except Exception as failure:  # noqa: BLE001 - an engine may fail in any way; the finding is that it did
            return Parity(name, "not run", compared, str(failure)[:200])
        if difference is not None:
            return Parity(name, "different", compared, f"from id {difference} on with {len(messages)} messages")
    return Parity(name, "same", compared, "")
