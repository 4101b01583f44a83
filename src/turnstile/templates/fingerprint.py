"""What makes two heads the same head."""

from __future__ import annotations

import hashlib
import json
from typing import Any, cast

from turnstile.conversation import Image, JsonText, Message, Part, Text
from turnstile.generation import Head, LiteralSpecials
from turnstile.templates.render import Template
from turnstile.templates.tokenizer import Tokenizer


def head_of(  # noqa: PLR0913 - a head is these seven
    *,
    model: str,
    tokenizer: Tokenizer,
    template: Template,
    kwargs: JsonText,
    tools: tuple[JsonText, ...],
    leading_system: tuple[Message, ...],
    literal_specials: LiteralSpecials = LiteralSpecials.AS_ENGINE,
) -> Head:
    """The head of a request: two requests whose prompts begin alike have the same fingerprint.

    Tools keep their order and the order of their keys, since both decide ids; only the blanks between JSON tokens
    do not count. Template arguments are a mapping, so their order does not count. No tools and an empty list are
    one. The clock is no part of it.

    Args:
        model: the name that the client asked for.
        tokenizer: of the served model.
        template: of the served model, special tokens included.
        kwargs: template arguments, a JSON object.
        tools: declarations, in the client's order.
        leading_system: the system messages before any other message.
        literal_specials: what becomes of text that spells a control token; it decides ids from the first message on.
    """
    parts = (
        "turnstile head 1",
        model,
        tokenizer.sha256,
        tokenizer.size,
        template.sha256,
        sorted(template.special_tokens.items()),
        _mapping(kwargs),
        [_compact(tool) for tool in tools],
        [_system_text(message) for message in leading_system],
        # Only where it is not the engines' own way: a head of before there was a choice stays the same head.
        *(() if literal_specials is LiteralSpecials.AS_ENGINE else (literal_specials,)),
    )
    return Head(
        fingerprint=hashlib.sha256(json.dumps(parts).encode()).hexdigest(),
        model=model,
        tokenizer_sha256=tokenizer.sha256,
        vocab_size=tokenizer.size,
        chat_template_sha256=template.sha256,
        template_kwargs=kwargs,
        tools=tools,
        literal_specials=literal_specials,
    )


def _compact(text: JsonText) -> str:
    """JSON without the blanks between its tokens; text that is no JSON as it is."""
    try:
        return json.dumps(json.loads(text), separators=(",", ":"))
    except (ValueError, RecursionError):
        return text


def _mapping(kwargs: JsonText) -> list[tuple[str, Any]] | JsonText:
    try:
        value = json.loads(kwargs)
    except (ValueError, RecursionError):
        return kwargs
    # Only the outermost order is without meaning: a template may print a nested value as it is.
    return sorted(cast("dict[str, Any]", value).items()) if isinstance(value, dict) else kwargs


def _system_text(message: Message) -> list[str]:
    texts = [_part_text(part) for part in message.parts]
    return [message.role.value, message.name, *texts] if any(texts) else [message.role.value, message.name]


def _part_text(part: Part) -> str:
    match part:
        case Text(text=text):
            return text
        case Image(sha256=sha256):
            # A NUL keeps it apart from any text that a system message would say.
            return f"\x00image {sha256}"
