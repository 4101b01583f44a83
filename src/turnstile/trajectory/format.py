"""The neutral trajectory format, version 1.0: its types, and rollouts to and from one JSON object a line.

Ids are plain lists there; a float32 has nine significant digits, which restore it.
"""

from __future__ import annotations

import re
import struct
import sys
from array import array
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import chain
from typing import TypeAlias, cast

import msgspec
import orjson

from turnstile.errors import CallerError
from turnstile.tokens import IdRun, LogprobRun, SegmentKind
from turnstile.trajectory.finite import refuse_non_finite
from turnstile.trajectory.shapes import (
    FORMAT,
    FORMAT_VERSION,
    ArrayEntry,
    CallInfo,
    ErrorInfo,
    Float32Run,
    FormatPart,
    HeadInfo,
    MediaEntry,
    Rollout,
    SamplingInfo,
    Sequence,
    SequenceSegment,
    TokenCounts,
    UsageInfo,
)

__all__ = [
    "FORMAT",
    "FORMAT_VERSION",
    "ArrayEntry",
    "CallInfo",
    "ErrorInfo",
    "Fields",
    "Float32Run",
    "FormatPart",
    "HeadInfo",
    "MediaEntry",
    "Rollout",
    "SamplingInfo",
    "Sequence",
    "SequenceSegment",
    "TokenCounts",
    "UsageInfo",
    "check_version",
    "decode_line",
    "encode_line",
    "format_minor",
    "from_fields",
    "json_text",
    "parts_with_unknown",
    "restore_unknown",
    "stamp",
]

Fields: TypeAlias = dict[str, object]
Path: TypeAlias = tuple[str | int, ...]
"""Names and indices that lead from a rollout to one of its pieces."""

_PARTS: dict[type[FormatPart], dict[str, type[FormatPart]]] = {
    Rollout: {
        "error": ErrorInfo,
        "heads": HeadInfo,
        "samplings": SamplingInfo,
        "calls": CallInfo,
        "sequences": Sequence,
        "token_counts": TokenCounts,
    },
    CallInfo: {"usage": UsageInfo},
    Sequence: {"segments": SequenceSegment, "media": MediaEntry, "arrays": ArrayEntry},
}
_KNOWN: dict[type[FormatPart], frozenset[str]] = {
    kind: frozenset(kind.__struct_fields__) - {"unknown"}
    for kind in {*_PARTS, *(part for parts in _PARTS.values() for part in parts.values())}
}
_SEGMENT_DEFAULTS: dict[str, object] = {
    "call": None,
    "trainable": False,
    "mask_reason": None,
    "weight": 1.0,
    "policy_version_min": None,
    "policy_version_max": None,
}
_NEGATIVE_ZERO = struct.pack("<f", -0.0)
_VERSION = re.compile(r"([1-9][0-9]{0,5})\.([0-9]{1,6})")


def encode_line(rollout: Rollout) -> bytes:
    """A rollout as one JSON object without a line end.

    Raises: CallerError if a number in it is not finite, or a value in `extra` is not for JSON.
    """
    refuse_non_finite(rollout)
    return _json(rollout)


def decode_line(line: bytes) -> Rollout:
    """A rollout from one JSON object.

    Raises: CallerError whose `code` is E101, E102 or E103 of docs/reference/validate-codes.md.
    """
    try:
        fields = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise _unreadable("E101", f"not a rollout object: {error}") from error
    if not isinstance(fields, dict):
        raise _unreadable("E101", "not a rollout object")
    return from_fields(cast(Fields, fields))


def from_fields(fields: Fields) -> Rollout:
    """A rollout from its fields, which are consumed.

    Ids and float32 runs may already be `IdRun`, `LogprobRun`, `Float32Run`, or plain lists.
    Raises: CallerError whose `code` is E102 or E103.
    """
    _check_version(fields)
    _set_aside(fields, Rollout)
    try:
        return msgspec.convert(fields, Rollout, dec_hook=_restore)
    except msgspec.ValidationError as error:
        raise _unreadable("E103", f"field {_where(str(error))}") from error


def format_minor(rollout: Rollout) -> int:
    """The minor number of the format version that a rollout is stamped with."""
    return int(rollout.format_version.partition(".")[2])


def stamp(moment: datetime) -> str:
    """A time as the format writes it: RFC 3339, UTC, microseconds, `Z`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def json_text(value: object) -> str:
    """A part of a rollout as JSON text, for the columns that hold JSON."""
    return _json(value).decode()


def _json(value: object) -> bytes:
    try:
        return orjson.dumps(value, default=_plain, option=orjson.OPT_PASSTHROUGH_DATETIME)
    except orjson.JSONEncodeError as error:
        # It takes whatever is raised meanwhile for its own, an interrupt too.
        if isinstance(error.__cause__, KeyboardInterrupt):
            raise error.__cause__ from None
        raise CallerError(
            f"A value in the rollout cannot be written as JSON: {error}",
            "Look at what was put into its metadata or `extra`; numbers have 64 bits, and nesting has an end",
        ) from error


def parts_with_unknown(part: FormatPart, path: tuple[str | int, ...] = ()) -> Iterator[tuple[Path, FormatPart]]:
    """Each piece of a rollout that holds fields this version does not know, with the way to it."""
    if isinstance(part, Rollout) and not any(inner.unknown for inner in _all_parts(part)):
        return
    if part.unknown:
        yield path, part
    for name in _PARTS.get(type(part), {}):
        value: object = getattr(part, name)
        match value:
            case FormatPart():
                inner: Iterable[tuple[Path, object]] = [((name,), value)]
            case dict():
                inner = [((name, key), entry) for key, entry in cast(Fields, value).items()]
            case _:
                inner = [((name, at), entry) for at, entry in enumerate(cast(Iterable[object], value or ()))]
        for step, entry in inner:
            yield from parts_with_unknown(cast(FormatPart, entry), path + step)


def _all_parts(rollout: Rollout) -> Iterable[FormatPart]:
    """Every piece of a rollout, in no order."""
    calls, sequences = rollout.calls, rollout.sequences
    single = (
        (rollout, rollout.token_counts) if rollout.error is None else (rollout, rollout.token_counts, rollout.error)
    )
    inner = [(*sequence.segments, *sequence.media, *sequence.arrays.values()) for sequence in sequences]
    return chain(single, rollout.heads, rollout.samplings, calls, [call.usage for call in calls], sequences, *inner)


def restore_unknown(fields: Fields, kept: object) -> None:
    """Put unknown fields, as pairs of a way and the fields there, back where they stood.

    Raises: ValueError if `kept` is no list of such pairs.
    """
    try:
        for path, unknown in msgspec.convert(kept or [], list[tuple[list[str | int], Fields]], dec_hook=_restore):
            at: object = fields
            for step in path:
                at = cast(dict[str | int, object], at)[step]
            cast(Fields, at).update(unknown)
    except (msgspec.ValidationError, LookupError, TypeError) as error:
        raise ValueError(f"unknown fields cannot be put back: {error}") from error


def _unreadable(code: str, problem: str) -> CallerError:
    return CallerError(problem, "Run `turnstile validate FILE` to see every line that is at fault", code=code)


def _check_version(fields: Fields) -> None:
    name = fields.get("format")
    if name != FORMAT:
        raise _unreadable("E102", f"format {name!r} not readable, expected {FORMAT!r}")
    check_version(fields.get("format_version"))


def check_version(version: object) -> None:
    """See that a format version is readable here. Raises: CallerError (E102) that names it if it is not."""
    found = _VERSION.fullmatch(version) if isinstance(version, str) else None
    if found is None:
        raise _unreadable("E102", f"version {version!r} not readable, expected 1.MINOR")
    if found[1] != "1":
        raise CallerError(
            f"version {version} not readable, needs a turnstile that reads format {found[1]}",
            "Install a newer turnstile-rl",
            code="E102",
        )


def _set_aside(fields: Fields, kind: type[FormatPart]) -> None:
    """Move what this version does not know of `fields`, at every depth, into `unknown`."""
    known = _KNOWN[kind]
    if not known.issuperset(fields):
        fields["unknown"] = {name: fields.pop(name) for name in list(fields) if name not in known}
    for name, part in _PARTS.get(kind, {}).items():
        value = fields.get(name)
        if value and not _is_known(value, part):
            for inner in _parts_in(value, part):
                _set_aside(inner, part)


def _is_known(value: object, part: type[FormatPart]) -> bool:
    """Whether nothing in some parts is new; a quick look, as there may be thousands of segments."""
    if part in _PARTS or part is ArrayEntry:
        return False
    known = _KNOWN[part]
    try:
        if isinstance(value, list):
            return all(map(known.issuperset, cast(list[Fields], value)))
        return known.issuperset(cast(Fields, value))
    except TypeError:
        return False


def _parts_in(value: object, part: type[FormatPart]) -> list[Fields]:
    if isinstance(value, dict):
        mapping = cast(Fields, value)
        found: list[object] = list(mapping.values()) if part is ArrayEntry else [mapping]
    elif isinstance(value, list | tuple):
        found = list(cast(Iterable[object], value))
    else:
        found = []
    return [cast(Fields, inner) for inner in found if isinstance(inner, dict)]


def _where(message: str) -> str:
    """`Expected `int`, got `str` - at `$.calls[0].head`` as `calls[0].head: expected int, got str`."""
    what, _, path = message.partition(" - at ")
    what = what.replace("`", "")
    place = path.strip("`").removeprefix("$").removeprefix(".")
    return f"{place or 'of the rollout'}: {what[:1].lower()}{what[1:]}"


def _restore(kind: type, value: object) -> object:
    if kind is object or isinstance(value, kind):
        return value
    if not isinstance(value, list):
        raise ValueError(f"Expected `array`, got `{type(value).__name__}`")
    try:
        return _run_of(kind, cast(list[float | None], value))
    except (TypeError, OverflowError) as error:
        raise ValueError(f"Expected numbers, got something else: {error}") from error


def _run_of(kind: type, values: list[float | None]) -> object:
    if kind is IdRun:
        return IdRun(_packed(values, "i"))
    if kind is Float32Run:
        return Float32Run(_packed(values, "f"))
    try:
        return LogprobRun(_packed(values, "f"))
    except TypeError:
        return LogprobRun.of(values)


def _packed(values: list[float | None], code: str) -> bytes:
    try:
        # In half the time that an array takes.
        return struct.pack(f"<{len(values)}{code}", *values)
    except (struct.error, OverflowError):
        # What no float32 can hold becomes an infinity, which validate names; what is no number is a TypeError.
        wide = array(code, cast(list[float], values))
        if sys.byteorder == "big":
            wide.byteswap()
        return wide.tobytes()


def _plain(value: object) -> object:
    match value:
        case FormatPart():
            fields = msgspec.structs.asdict(value)
            unknown = fields.pop("unknown")
            if isinstance(value, SequenceSegment):
                for name, default in _SEGMENT_DEFAULTS.items():
                    if fields[name] == default and (name != "trainable" or value.kind != SegmentKind.SAMPLED):
                        del fields[name]
            return fields | unknown
        case datetime():
            return stamp(value)
        case IdRun():
            return value.tolist()
        case LogprobRun():
            return _float_text(Float32Run(value.packed), value.unknown)
        case Float32Run():
            return _float_text(value, ())
        case _:
            raise TypeError(f"cannot write {type(value).__name__}")


def _float_text(run: Float32Run, unknown: tuple[int, ...]) -> orjson.Fragment:
    # One format of the whole run takes a third of the time that one format a number would.
    values = tuple(run.tolist())
    text = ",".join(["%.9g"] * len(values)) % values
    # The format writes -0.0 as -0, which JSON reads as the integer 0.
    if unknown or _NEGATIVE_ZERO in run.packed:
        pieces = ["-0.0" if piece == "-0" else piece for piece in text.split(",")]
        for at in unknown:
            pieces[at] = "null"
        text = ",".join(pieces)
    return orjson.Fragment(f"[{text}]")
