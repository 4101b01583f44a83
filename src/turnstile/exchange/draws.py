"""From what a client asked for to how each choice is sampled."""

from __future__ import annotations

import enum

import msgspec

from turnstile.conversation import Call, JsonObject, JsonSchema, Sampling, ToolChoice, ToolMode, is_plain
from turnstile.engines.base import ENFORCED, Capabilities
from turnstile.errors import CallerError
from turnstile.generation import Constraint, Draw, Free
from turnstile.parsing.formats import AnswerFormat
from turnstile.templates.served import Served

SEED_SPACE = 2**31


class Overflow(enum.StrEnum):
    """What becomes of a request for more tokens than the engine's window has room for behind the prompt."""

    AS_ENGINE = "as_engine"
    """What the engine makes of it: an error mostly."""
    CLAMP = "clamp"
    """The engine is asked for as many as there is room for."""


_WIRE_NAMES = {"choices": "n", "stop_ids": "stop"}
_ENFORCED_FIELDS = frozenset({"response_format", "tool_choice"})


def draw_for(call: Call, constraint: Constraint, stop_ids: frozenset[int], seed: int, affinity: str) -> Draw:
    """The first choice's draw: what the client said, else the neutral value (temperature 1, no filter).

    Neutral defaults are OpenAI's own, and the setting at which every meaning of a log-probability agrees.
    """
    wanted = call.sampling
    return Draw(
        temperature=_or(wanted.temperature, 1.0),
        top_p=_or(wanted.top_p, 1.0),
        top_k=max(0, wanted.top_k or 0),
        min_p=_or(wanted.min_p, 0.0),
        presence_penalty=_or(wanted.presence_penalty, 0.0),
        frequency_penalty=_or(wanted.frequency_penalty, 0.0),
        repetition_penalty=_or(wanted.repetition_penalty, 1.0),
        logit_bias=wanted.logit_bias,
        seed=seed if wanted.seed is None else wanted.seed % SEED_SPACE,
        max_tokens=wanted.max_tokens,
        stop=wanted.stop,
        stop_ids=stop_ids,
        constraint=constraint,
        top_logprobs=max(1, wanted.top_logprobs) if wanted.top_logprobs is not None else 0,
        affinity=affinity,
    )


def _or(said: float | None, neutral: float) -> float:
    return neutral if said is None else said


def clamped(draw: Draw, prompt_length: int, window: int | None) -> Draw:
    """A draw that asks for no more tokens than a window has room for behind a prompt.

    A prompt that leaves no room is the engine's to refuse, and so is every one where the window is not known.

    Args:
        draw: as the client wants it.
        prompt_length: in ids.
        window: ids of prompt and completion together; None = unknown.
    """
    room = 0 if window is None else window - prompt_length
    if draw.max_tokens is None or not 0 < room < draw.max_tokens:
        return draw
    return msgspec.structs.replace(draw, max_tokens=room)


def choices_of(draw: Draw, sampling: Sampling) -> tuple[Draw, ...]:
    """One draw for each of the client's n choices."""
    return tuple(msgspec.structs.replace(draw, choice=choice) for choice in range(sampling.choices))


def refuse_what_is_not_honoured(call: Call, draw: Draw, capabilities: Capabilities) -> None:
    """A parameter that the engine would ignore is refused by name.

    Args:
        call: the request.
        draw: made of it.
        capabilities: of the engine.

    Raises: CallerError naming the parameter.
    """
    neutral = Draw()
    for field in ("temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty",
                  "repetition_penalty", "logit_bias", "stop"):  # fmt: skip
        if getattr(draw, field) != getattr(neutral, field) and field not in capabilities.honours:
            raise _not_honoured(field, capabilities)
    if not isinstance(draw.constraint, Free):
        kind = draw.constraint.__struct_config__.tag
        if kind not in capabilities.constraints:
            name = "response_format" if isinstance(call.output, (JsonObject, JsonSchema)) else "tool_choice"
            raise _not_honoured(name, capabilities)
    if draw.top_logprobs > capabilities.max_top_logprobs:
        raise CallerError(
            f"`top_logprobs` is {draw.top_logprobs}, but the engine gives at most {capabilities.max_top_logprobs}",
            "Ask for fewer alternatives",
            param="top_logprobs",
        )


def refuse_lost_tools(call: Call, served: Served) -> None:
    """Tools that the chat template does not print would be ignored in silence: the model never learns of them.

    Raises: CallerError naming `tools`.
    """
    declarations = tuple(tool.declaration for tool in call.tools)
    if declarations and call.tool_choice is not ToolMode.NONE and served.for_tools(declarations).facts.drops_tools:
        raise CallerError(
            "The served chat template does not print `tools`, so the model would never see them",
            "Serve with a template that has tools (--template FILE), or describe them in the system message",
            code="unsupported_parameter",
            param="tools",
        )


def reading_of(call: Call, format: AnswerFormat, capabilities: Capabilities) -> ToolChoice | None:
    """What the engine's own parser is to read an answer with (`Prompt.read_with`); None: Turnstile reads it.

    Raises: CallerError naming `tool_choice` if the engine reads calls and cannot be made to write one.
    """
    if not format.is_read_by_engine:
        return None
    is_forced = call.tool_choice not in (ToolMode.AUTO, ToolMode.NONE)
    if is_forced and "calls" not in capabilities.constraints:
        raise CallerError(
            f"The engine ({capabilities.engine} {capabilities.version}) cannot be made to call a tool in this format",
            "Use `tool_choice` `auto`",
            code="unsupported_parameter",
            param="tool_choice",
        )
    return call.tool_choice


def refuse_images(call: Call, capabilities: Capabilities) -> None:
    """An engine that takes no images would run their placeholders as plain tokens.

    Raises: CallerError naming the first message with an image.
    """
    if capabilities.images != "none":
        return
    for at, message in enumerate(call.messages):
        if not is_plain(message) and message.images:
            raise CallerError(
                f"`messages[{at}]` holds an image, but the engine ({capabilities.engine} {capabilities.version}) "
                "cannot be given one",
                next(
                    (each.remedy for each in capabilities.missing if each.what == "images" and each.remedy),
                    "Send text only, or serve a model that sees, with its image part",
                ),
                code="images_not_supported",
                param=f"messages[{at}]",
            )


def _not_honoured(field: str, capabilities: Capabilities) -> CallerError:
    name = _WIRE_NAMES.get(field, field)
    flags = [each.remedy for each in capabilities.missing if each.what == ENFORCED and field in _ENFORCED_FIELDS]
    return CallerError(
        f"`{name}` is not honoured by the engine ({capabilities.engine} {capabilities.version})",
        next(filter(None, flags), "Leave it out, or serve the model with an engine that honours it"),
        code="unsupported_parameter",
        param=name,
    )
