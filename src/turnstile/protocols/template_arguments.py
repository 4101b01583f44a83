"""What a request gives to the chat template."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from turnstile.conversation import JsonText
from turnstile.protocols.body_fields import unsupported
from turnstile.protocols.json_body import read_json, snippet, wrong_value

_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_OWN = frozenset({"add_generation_prompt", "chat_template", "continue_final_message", "messages", "tokenize", "tools"})

_any_decoder: msgspec.json.Decoder[object] = msgspec.json.Decoder(object)
_sorted_encoder = msgspec.json.Encoder(order="sorted")


def template_arguments(effort: str | None, effort_path: str, more: Mapping[str, msgspec.Raw] | None) -> JsonText:
    """Arguments for the template; one in `chat_template_kwargs` wins over the reasoning effort.

    Args:
        effort: how hard the model is to think, in OpenAI's words; None: the client did not say.
        effort_path: the field that says it.
        more: `chat_template_kwargs`, vLLM's extension.

    Raises: CallerError that names the argument at fault.
    """
    arguments: dict[str, object] = {}
    if effort is not None:
        if effort not in _EFFORTS:
            raise wrong_value(effort_path, f"one of {', '.join(_EFFORTS)}", f'"{effort}"')
        arguments["reasoning_effort"] = effort
    for name, raw in (more or {}).items():
        path = f"chat_template_kwargs.{snippet(name)}"
        if name in _OWN:
            raise unsupported(path, "Leave it out; it is set from the request itself")
        arguments[name] = read_json(_any_decoder, raw, path)
    return _sorted_encoder.encode(arguments).decode()
