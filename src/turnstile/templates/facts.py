"""What planning must know of a template, found out by rendering small conversations at start.

Source: docs/decisions/0004, checks 1, 2, 3 and 5 of the certificate.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec

from turnstile.conversation import Ending, JsonText, Message, Role, Text, ToolCall
from turnstile.templates.closing import END_OF_REASONING, reasoning_close
from turnstile.templates.files import ModelFiles, ModelFilesError, StopSource
from turnstile.templates.images import probe_images
from turnstile.templates.render import (
    ArgumentsForm,
    ContentForm,
    GenerationPrompt,
    MessageForm,
    RenderRequest,
    Template,
    TemplateFailed,
)
from turnstile.templates.sentinel import Boundary, Markers, Outlook, closing, cut, small_past, tail
from turnstile.templates.served import (
    Closing,
    Mode,
    Refusal,
    Scene,
    Served,
    StopClass,
    TemplateFacts,
)
from turnstile.templates.tokenizer import Tokenizer

__all__ = ["Served", "TemplateFacts", "probe", "serve"]

REASONING_FIELDS = ("reasoning_content", "thinking", "reasoning")
"""Under which templates look for reasoning, the commonest first."""

_MARKERS = Markers("zqSENTINEL")
_MARK = _MARKERS.answer
_NOW = datetime(2024, 1, 1, tzinfo=UTC)
_TOOL: JsonText = (
    '{"type":"function","function":{"name":"zqtool","description":"zq","parameters":'
    '{"type":"object","properties":{"zqarg":{"type":"string","description":"zq"}},"required":["zqarg"]}}}'
)
_CALL_ID = "zqcallid1"
"""Mistral's template insists on nine letters or digits."""
_SCENE = Scene((), (_TOOL,), "{}", _NOW)
_SYSTEM = Message(role=Role.SYSTEM, parts=(Text("zqsystem"),))
_USER = Message(role=Role.USER, parts=(Text("zquser"),))
_ANSWER = Message(role=Role.ASSISTANT, parts=(Text("zqanswer"),))
_CALLING = Message(role=Role.ASSISTANT, calls=(ToolCall(_CALL_ID, "zqtool", f'{{"zqarg":"{_MARK}"}}'),))
_PLAIN_CALLING = Message(role=Role.ASSISTANT, calls=(ToolCall(_CALL_ID, "zqtool", '{"zqarg":"zq"}'),))
_RESULT = Message(role=Role.TOOL, parts=(Text("zqresult"),), call_id=_CALL_ID)
_EARLIER_ID = "zqcallid0"
_EARLIER_M = (
    _USER,
    Message(role=Role.ASSISTANT, calls=(ToolCall(_EARLIER_ID, "zqtool", '{"zqarg":"zq"}'),)),
    Message(role=Role.TOOL, parts=(Text("zqresult"),), call_id=_EARLIER_ID),
    _ANSWER,
    _USER,
)
"""A past with a complete tool cycle in it."""
_THINKING = (
    (_USER, Message(role=Role.ASSISTANT, parts=(Text("zq"),), reasoning=_MARK)),
    (_USER, Message(role=Role.ASSISTANT, reasoning=_MARK, calls=_PLAIN_CALLING.calls)),
)
"""Some templates print reasoning only in front of a call (Kimi K2)."""


def serve(files: ModelFiles, *, model: str, stop_ids: frozenset[int] = frozenset()) -> Served:
    """A model ready to be planned for. A template that cannot be spliced is served too: see `facts.problem`.

    Args:
        files: the model's text side.
        model: the name under which clients know it.
        stop_ids: where the engine says that it ends answers; added to what the files say.

    Raises: ModelFilesError if the tokenizer or the template cannot be read, or there is no template.
    """
    tokenizer = Tokenizer.from_json(files.tokenizer_json)
    served = _served(tokenizer, files.chat_template, files, model, stop_ids)
    if not files.tool_use_template:
        return served
    with_tools = _served(tokenizer, files.tool_use_template, files, model, stop_ids)
    return Served(
        model, tokenizer, served.template, served.facts, served.stop_ids, served.stop_ids_inferred, with_tools
    )


def _served(
    tokenizer: Tokenizer, source: str, files: ModelFiles, model: str, engine_stop_ids: frozenset[int]
) -> Served:
    if not source:
        raise ModelFilesError(f"The model `{model}` has no chat template", "Give one with `--template FILE`")
    template = Template(source, files.special_tokens)
    named = engine_stop_ids | frozenset(_named_stop_ids(files, tokenizer))
    # The tokenizer's eos_token alone is a default that many models never sample; all other sources are about answers.
    is_said = bool(engine_stop_ids) or any(stop.source is not StopSource.TOKENIZER_CONFIG for stop in files.stop_tokens)
    inferred = frozenset[int]() if is_said else infer_stop_ids(template, tokenizer, named)
    stop_ids = named | inferred
    return Served(model, tokenizer, template, probe(template, tokenizer, stop_ids), stop_ids, inferred)


def _named_stop_ids(files: ModelFiles, tokenizer: Tokenizer) -> Iterator[int]:
    for stop in files.stop_tokens:
        token_id = tokenizer.id_of(stop.token) if isinstance(stop.token, str) else stop.token
        if token_id is not None:
            yield token_id


def infer_stop_ids(template: Template, tokenizer: Tokenizer, named: frozenset[int]) -> frozenset[int]:
    """What the template's own closings suggest as stop tokens beside the named ones.

    For a closing that ends with no named one: the last control token that it has in common as last message and in
    history, or else its last; where nothing closes a message, the control token at the start of what follows it.
    """
    draft = _draft(template, tokenizer, named)
    found: set[int] = set()
    for mode, new in ((Mode.CONTENT, _USER), (Mode.ARGS, _RESULT)):
        closed = closing(draft, _SCENE, _PLAIN_CALLING, mode)
        behind = tail(draft, _SCENE, small_past(_SCENE), _ahead(new), mode)
        if isinstance(closed, Closing) and isinstance(behind, str):
            found |= _suggested(draft, closed, behind)
    return frozenset(found) - named


def _suggested(draft: Served, closed: Closing, behind: str) -> set[int]:
    controls = [token for token in closed.added if draft.tokenizer.is_special(token.token_id)]
    shared = [token.token_id for token in controls if behind.startswith(closed.text[: token.end])]
    if not draft.stop_ids.isdisjoint(shared):
        return set()
    if controls:
        return {(shared or [token.token_id for token in controls])[-1]}
    header = draft.tokenizer.encode(behind.removeprefix(closed.text.rstrip()).lstrip()[:64])
    return {header[0]} if header and draft.tokenizer.is_special(header[0]) else set()


def probe(template: Template, tokenizer: Tokenizer, stop_ids: frozenset[int]) -> TemplateFacts:
    """The facts about a template that planning needs; takes some twenty small renders.

    Never fails: what cannot be found out is in `problem`, and nothing is spliced then.
    """
    draft = _draft(template, tokenizer, stop_ids)
    boundary = _boundary(draft, Mode.CONTENT, _USER)
    if isinstance(boundary, Refusal):
        return msgspec.structs.replace(draft.facts, problem=f"{boundary.reason}: {boundary.detail}")
    ending = "" if boundary.stop_class is StopClass.HEADER_STOP else boundary.tail[: boundary.end]
    return msgspec.structs.replace(
        draft.facts,
        stop_class=boundary.stop_class,
        needs_history=frozenset(_needing_history(draft)),
        content_close=ending,
        reasoning_close=_reasoning_close(draft, stop_ids | {boundary.terminator}, ending),
        reasoning_opener=_reasoning_opener(draft),
    )


def _reasoning_close(draft: Served, terminators: frozenset[int], ending: str) -> str:
    if not draft.facts.form.reasoning_field:
        return END_OF_REASONING + ending
    closed = closing(draft, _SCENE, _ANSWER, Mode.REASONING)
    return END_OF_REASONING + ending if isinstance(closed, Refusal) else reasoning_close(closed, terminators, ending)


def _draft(template: Template, tokenizer: Tokenizer, stop_ids: frozenset[int]) -> Served:
    arguments, drops_calls = _arguments_form(template)
    form = MessageForm(
        arguments=arguments,
        reasoning_field=_reasoning_field(template),
        joiner=_joiner(template),
        content=_content_form(template),
    )
    image_type, images = probe_images(tokenizer, form, lambda messages, shaped: _text(template, messages, shaped))
    facts = TemplateFacts(
        form=msgspec.structs.replace(form, image_type=image_type),
        stop_class=StopClass.NONE,
        drops_calls=drops_calls,
        drops_tools=_drops_tools(template),
        needs_history=frozenset(),
        content_close="",
        reasoning_close="",
        reasoning_opener="",
        images=images,
    )
    return Served("", tokenizer, template, facts, stop_ids)


def _text(
    template: Template,
    messages: tuple[Message, ...],
    form: MessageForm,
    generation: GenerationPrompt = GenerationPrompt.OMIT,
) -> str:
    """The rendered text; empty if the template raises."""
    request = RenderRequest(messages=messages, tools=(_TOOL,), generation=generation, now=_NOW, form=form)
    try:
        return template.render(request)
    except TemplateFailed:
        return ""


def _arguments_form(template: Template) -> tuple[ArgumentsForm, bool]:
    """The form printed neither as a Python object nor quoted twice, and whether calls are not printed at all."""
    messages = (_USER, _CALLING, _RESULT)
    as_object = _text(template, messages, MessageForm(arguments=ArgumentsForm.OBJECT))
    as_string = _text(template, messages, MessageForm(arguments=ArgumentsForm.STRING))
    if _MARK in as_object and "'zqarg'" not in as_object:
        return ArgumentsForm.OBJECT, False
    if _MARK in as_string and '\\"zqarg' not in as_string:
        return ArgumentsForm.STRING, False
    return ArgumentsForm.OBJECT, _MARK not in as_object


def _drops_tools(template: Template) -> bool:
    beginnings = ((_USER,), (_SYSTEM, _USER))
    texts = [_text(template, messages, MessageForm(), GenerationPrompt.ADD) for messages in beginnings]
    return any(texts) and not any("zqtool" in text for text in texts)


def _reasoning_field(template: Template) -> str:
    for field in REASONING_FIELDS:
        if any(_MARK in _text(template, messages, MessageForm(reasoning_field=field)) for messages in _THINKING):
            return field
    return ""


def _content_form(template: Template) -> ContentForm:
    """Strings, unless the template prints text only from lists."""
    message = Message(role=Role.USER, parts=(Text(_MARK),))
    as_string = _text(template, (message,), MessageForm(content=ContentForm.STRING))
    as_parts = _text(template, (message,), MessageForm(content=ContentForm.PARTS))
    return ContentForm.PARTS if _MARK not in as_string and _MARK in as_parts else ContentForm.STRING


def _joiner(template: Template) -> str:
    """What the template itself puts between text parts; where it knows no parts, what vLLM puts there."""
    first, second = _MARKERS.body(0), _MARKERS.body(1)
    message = Message(role=Role.USER, parts=(Text(first), Text(second)))
    text = _text(template, (message,), MessageForm(content=ContentForm.PARTS))
    _, has_first, behind = text.partition(first)
    between, has_second, _ = behind.partition(second)
    is_text = bool(has_first and has_second) and not between.strip()
    return between if is_text else MessageForm().joiner


def _ahead(*new_M: Message) -> Outlook:
    return Outlook(_PLAIN_CALLING, new_M, Ending.ANSWER, _MARKERS)


def _boundary(draft: Served, mode: Mode, new: Message) -> Boundary | Refusal:
    closed = closing(draft, _SCENE, _PLAIN_CALLING, mode)
    if isinstance(closed, Refusal):
        return closed
    behind = tail(draft, _SCENE, small_past(_SCENE), _ahead(new), mode)
    return behind if isinstance(behind, Refusal) else cut(draft, closed, behind)


def _needing_history(draft: Served) -> Iterator[Mode]:
    """The modes in which a past with a tool cycle changes what stands behind an answer."""
    shapes = [(Mode.CONTENT, _USER), (Mode.CONTENT if draft.facts.drops_calls else Mode.ARGS, _RESULT)]
    for mode, new in shapes:
        small = tail(draft, _SCENE, small_past(_SCENE), _ahead(new), mode)
        deep = tail(draft, _SCENE, _EARLIER_M, _ahead(new), mode)
        if isinstance(small, str) and isinstance(deep, str) and small != deep:
            yield mode


def _reasoning_opener(draft: Served) -> str:
    form = draft.facts.form
    if not form.reasoning_field:
        return ""
    texts = (_text(draft.template, messages, form) for messages in _THINKING)
    opened = next((text.partition(_MARK)[0] for text in texts if _MARK in text), "")
    prompt = _text(draft.template, (_USER,), form, GenerationPrompt.ADD)
    if not opened.startswith(prompt):
        return ""
    if opened == prompt:
        return prompt.removeprefix(_text(draft.template, (_USER,), form))
    return opened[len(prompt) :]
