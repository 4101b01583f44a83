"""Arguments of calls in dialects whose wire has only JSON objects: what is none travels inside one."""

from __future__ import annotations

import msgspec

from turnstile.conversation import JsonText

ODD_ARGUMENTS = "__arguments__"
"""The one member of a call's arguments that stands for arguments which are no JSON object."""

_odd_decoder: msgspec.json.Decoder[dict[str, str]] = msgspec.json.Decoder(dict[str, str])


def input_of(arguments: JsonText) -> JsonText:
    """A call's arguments as such a dialect has them: a JSON object, whatever they are."""
    try:
        msgspec.json.decode(arguments or "{}", type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError):
        return msgspec.json.encode({ODD_ARGUMENTS: arguments}).decode()
    return arguments or "{}"


def arguments_in(written: JsonText) -> JsonText:
    """What `input_of` was given, for an object that came back."""
    if ODD_ARGUMENTS not in written:
        return written
    try:
        members = _odd_decoder.decode(written)
    except msgspec.ValidationError:
        return written
    return members[ODD_ARGUMENTS] if members.keys() == {ODD_ARGUMENTS} else written
