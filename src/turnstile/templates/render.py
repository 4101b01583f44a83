"""A conversation to text, exactly as the engine's own chat route would write it.

Variables and functions are those that transformers' `apply_chat_template` gives a template; messages have the form
that vLLM and SGLang give them. Where the two leave a choice, it is made here and said why.
"""

from __future__ import annotations

import enum
import hashlib
import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, assert_never, cast

import jinja2
import msgspec

from turnstile.conversation import Image, JsonText, Message, Part, Role, Text, ToolCall
from turnstile.errors import CallerError
from turnstile.templates.files import ModelFilesError
from turnstile.templates.sandbox import BoundedTemplate

MAX_SOURCE = 2**20
"""Characters of a template's source; the largest one known has some 30,000."""

_OURS = frozenset({"messages", "tools", "add_generation_prompt", "strftime_now"})


class TemplateFailed(CallerError):
    """The chat template refused a conversation, or broke on it."""

    code = "template_failed"


class GenerationPrompt(enum.Enum):
    """Whether the header of the next assistant message ends the text."""

    ADD = "add"
    OMIT = "omit"


class ArgumentsForm(enum.Enum):
    """How a template wants the arguments of a call."""

    OBJECT = "object"
    """As the parsed JSON object: most templates, and what vLLM passes."""
    STRING = "string"
    """As the JSON text: DeepSeek V3."""


class ContentForm(enum.Enum):
    """How a template wants the text of a message."""

    STRING = "string"
    PARTS = "parts"
    """As a list of `{"type": "text", "text": ...}`."""


class ImageType(enum.StrEnum):
    """Under which type a template looks for an image among the parts of a message."""

    IMAGE = "image"
    """As transformers, vLLM and SGLang write it."""
    IMAGE_URL = "image_url"
    """As clients write it."""


class MessageForm(msgspec.Struct, frozen=True):
    """How messages are written for one template. Probed, not guessed."""

    arguments: ArgumentsForm = ArgumentsForm.OBJECT
    reasoning_field: str = "reasoning_content"
    """`reasoning_content`, `thinking` or `reasoning`; empty: thinking is left out."""
    joiner: str = "\n"
    """Between text parts that become one string; vLLM's choice."""
    content: ContentForm = ContentForm.STRING
    """Of messages without images; a message with one is always a list of parts."""
    image_type: ImageType = ImageType.IMAGE


class RenderRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one render depends on, beside the template."""

    messages: tuple[Message, ...]
    tools: tuple[JsonText, ...] = ()
    """Declarations, in order; none and absent are one."""
    kwargs: JsonText = "{}"
    """Arguments of the template, a JSON object."""
    generation: GenerationPrompt = GenerationPrompt.ADD
    now: datetime
    """What `strftime_now` sees; frozen for a rollout, so that a prompt does not change at midnight."""
    form: MessageForm = MessageForm()


class Template:
    """A compiled chat template; safe to share between threads."""

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        """Compile.

        Args:
            source: the Jinja2 text.
            special_tokens: texts of `bos_token`, `eos_token`, ...; an empty one is as absent, as in transformers.

        Raises: ModelFilesError if the source is too long or no Jinja2.
        """
        if len(source) > MAX_SOURCE:
            raise ModelFilesError(
                f"The chat template has {len(source)} characters, more than {MAX_SOURCE}",
                "Give the model's own template",
            )
        try:
            self._compiled = BoundedTemplate(source)
        except (jinja2.TemplateError, RecursionError, SyntaxError) as error:
            raise ModelFilesError(
                f"The chat template cannot be compiled: {error}", "Give the model's own template"
            ) from error
        self._source = source
        self._sha256 = hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()
        self.special_tokens = {role: text for role, text in special_tokens.items() if text}

    @property
    def source(self) -> str:
        """The Jinja2 text."""
        return self._source

    @property
    def sha256(self) -> str:
        """Of the source."""
        return self._sha256

    def render(self, request: RenderRequest) -> str:
        """The prompt's text; never adds a begin-of-sequence token of its own.

        `tools` and `documents` are None where there are none, as transformers passes them: a template for which
        None and undefined differ (of 48 real ones only Hermes 3, which raises) must not silently get other text
        than from the engine.

        Raises: TemplateFailed with the template's own words if it raises, is too slow or makes too much;
            CallerError if tools or kwargs are no JSON objects, or kwargs name a variable that is ours.
        """
        variables: dict[str, Any] = {"documents": None, "tools": None, **variables_of(request, self.special_tokens)}
        try:
            return self._compiled.render(variables)
        except Exception as error:
            raise TemplateFailed(
                f"The chat template refused the conversation: {error or type(error).__name__}",
                "Send messages in an order and form that the model's template accepts",
                param="messages",
            ) from error


def variables_of(request: RenderRequest, special_tokens: Mapping[str, str]) -> dict[str, Any]:
    """What a template is given for one render; `tools` only if there are some.

    Raises: CallerError if tools or kwargs are no JSON objects, or kwargs name a variable that is ours.
    """
    variables: dict[str, Any] = {
        **special_tokens,
        **_template_kwargs(request.kwargs),
        "messages": [_message(message, request.form) for message in request.messages],
        "add_generation_prompt": request.generation is GenerationPrompt.ADD,
        "strftime_now": _clock(request.now),
    }
    if request.tools:
        variables["tools"] = [_json_object(tool, "tools") for tool in request.tools]
    return variables


def _clock(now: datetime) -> Callable[[str], str]:
    def strftime_now(format: str) -> str:
        return now.strftime(format)

    return strftime_now


def _template_kwargs(kwargs: JsonText) -> dict[str, Any]:
    values = _json_object(kwargs, "chat_template_kwargs")
    if clash := sorted(_OURS & values.keys()):
        raise CallerError(
            f"`chat_template_kwargs` may not set `{clash[0]}`",
            "Send it in the request's own field",
            param="chat_template_kwargs",
        )
    return values


def _json_object(text: JsonText, field: str) -> dict[str, Any]:
    value = _parsed(text)
    if not isinstance(value, dict):
        raise CallerError(f"`{field}` holds what is no JSON object", "Send a JSON object", param=field)
    return cast("dict[str, Any]", value)


def _parsed(text: JsonText) -> object:
    """The JSON value; None if the text is none or is nested too deeply for a template to print."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _message(message: Message, form: MessageForm) -> dict[str, Any]:
    """A message in the form that engines give templates; what is empty is left out, except the content.

    The content of a message without text is "" and never None, as vLLM and SGLang pass it: of 48 real templates
    none does worse with "", 12 raise on None and 6 print the word `None`.
    """
    written: dict[str, Any] = {"role": message.role.value, "content": _content(message, form)}
    if message.reasoning and form.reasoning_field:
        written[form.reasoning_field] = message.reasoning
    if message.calls:
        written["tool_calls"] = [_call(call, form) for call in message.calls]
    if message.role is Role.TOOL and message.call_id:
        written["tool_call_id"] = message.call_id
    if message.name:
        written["name"] = message.name
    return written


def joined_text(message: Message, joiner: str) -> str:
    """All text parts of a message as one string."""
    return joiner.join(part.text for part in message.parts if isinstance(part, Text))


def _content(message: Message, form: MessageForm) -> str | list[dict[str, str]]:
    match form.content:
        case ContentForm.STRING if not message.images:
            return joined_text(message, form.joiner)
        case ContentForm.STRING | ContentForm.PARTS:
            return [_part(part, form) for part in message.parts]
        case _:
            assert_never(form.content)


def _part(part: Part, form: MessageForm) -> dict[str, str]:
    match part:
        case Text(text=text):
            return {"type": "text", "text": text}
        case Image():
            return {"type": form.image_type.value}


def _call(call: ToolCall, form: MessageForm) -> dict[str, Any]:
    function = {"name": call.name, "arguments": _arguments(call.arguments, form)}
    identity = {"id": call.call_id} if call.call_id else {}
    return {**identity, "type": "function", "function": function}


def _arguments(arguments: JsonText, form: MessageForm) -> object:
    match form.arguments:
        case ArgumentsForm.OBJECT:
            value = _parsed(arguments or "{}")
            return cast("object", value) if isinstance(value, dict) else arguments
        case ArgumentsForm.STRING:
            return arguments
        case _:
            assert_never(form.arguments)
