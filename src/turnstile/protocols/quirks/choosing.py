"""Which quirks a server acts on: those that are known, those of a file of own entries, less those switched off."""

from __future__ import annotations

import enum
import re
import tomllib
from collections.abc import Iterator, Sequence
from typing import assert_never

import msgspec

from turnstile.errors import CallerError
from turnstile.protocols.quirks.entry import (
    TABLE_VERSION,
    MarkAuxiliary,
    NameAgent,
    Quirk,
    RemoveSystemLine,
    ToldOnly,
    When,
)
from turnstile.protocols.quirks.known import KNOWN

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_HEADER = re.compile(r"[a-z0-9-]{1,64}")
_REMEDY = "Write it as docs/reference/quirks.md shows"


class FileForm(enum.StrEnum):
    """How a file of own entries is written."""

    TOML = "toml"
    JSON = "json"


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    quirks: tuple[Quirk, ...]


def read_quirks(text: str, form: FileForm) -> tuple[Quirk, ...]:
    """The entries of a file.

    Raises: CallerError `quirks_invalid` that names the entry and what is wrong with it.
    """
    try:
        fields: object = tomllib.loads(text) if form is FileForm.TOML else msgspec.json.decode(text)
        file = msgspec.convert(fields, _File)
    except (tomllib.TOMLDecodeError, msgspec.MsgspecError, RecursionError) as error:
        raise _invalid(f"The file of quirks cannot be read as {form.upper()}: {error}") from error
    if file.version != TABLE_VERSION:
        raise _invalid(f"The file of quirks has version {file.version}, and {TABLE_VERSION} is the one that is known")
    for quirk in file.quirks:
        for fault in _faults(quirk):
            raise _invalid(f"Quirk `{quirk.name[:64]}`: {fault}")
    return tuple(msgspec.structs.replace(quirk, when=folded(quirk.when)) for quirk in file.quirks)


def folded(when: When) -> When:
    """The same tests as the interpreter wants them: case-folded once, and not with each request."""

    def fold(texts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(text.casefold() for text in texts)

    return msgspec.structs.replace(
        when,
        user_is=when.user_is.casefold(),
        last_user_has=fold(when.last_user_has),
        system_has=fold(when.system_has),
    )


def chosen_quirks(own: Sequence[Quirk], without: Sequence[str]) -> tuple[Quirk, ...]:
    """The quirks to act on; own entries come first.

    Args:
        own: entries of the operator's.
        without: names of entries that are switched off.

    Raises: CallerError `quirks_invalid` if a name is taken twice, `quirk_unknown` if none has a name to switch off.
    """
    table = (*own, *KNOWN)
    names = [quirk.name for quirk in table]
    for at, name in enumerate(names):
        if name in names[at + 1 :]:
            raise _invalid(f"Quirk `{name}` is there twice; one that is known keeps its name when it is switched off")
    acting = tuple(quirk for quirk in table if not isinstance(quirk.action, ToldOnly))
    for name in without:
        if name not in {quirk.name for quirk in acting}:
            told = name in names
            raise CallerError(
                f"Quirk `{name[:64]}` is only told of, nothing is switched by it"
                if told
                else f"There is no quirk `{name[:64]}` to switch off",
                f"Use one of {', '.join(quirk.name for quirk in acting)}",
                code="quirk_unknown",
            )
    return tuple(quirk for quirk in acting if quirk.name not in without)


def _faults(quirk: Quirk) -> Iterator[str]:
    if not _NAME.fullmatch(quirk.name):
        yield "`name` must be of a to z, 0 to 9 and _, and begin with a letter"
    yield from _when_faults(quirk.when)
    yield from _action_faults(quirk)


def _when_faults(when: When) -> Iterator[str]:
    for test in when.headers:
        yield from _header_faults("when.headers", test.name)
    for name in ("dialects", "output_fields", "last_user_has", "system_has"):
        if "" in getattr(when, name):
            yield f"`when.{name}` holds an empty text"


def _action_faults(quirk: Quirk) -> Iterator[str]:
    match quirk.action:
        case RemoveSystemLine(starts_with=begin):
            if not begin.strip() or "\n" in begin:
                yield "`action.starts_with` must be the beginning of one line"
        case MarkAuxiliary(purpose=purpose):
            if not _NAME.fullmatch(purpose):
                yield "`action.purpose` must be one word of a to z, 0 to 9 and _"
            if quirk.when in (When(), When(dialects=quirk.when.dialects)):
                yield "`when` has no test, so that every call would be auxiliary"
        case NameAgent(from_headers=headers, parent_header=parent):
            if not headers:
                yield "`action.from_headers` is empty"
            for name in (*headers, parent) if parent else headers:
                yield from _header_faults("action", name)
        case ToldOnly():
            yield "`action` of type `told_only` does nothing"
        case _:
            assert_never(quirk.action)


def _header_faults(where: str, name: str) -> Iterator[str]:
    if not _HEADER.fullmatch(name):
        yield f"`{where}` names the header `{name[:64]}`, which is not in lower case"


def _invalid(problem: str) -> CallerError:
    return CallerError(problem, _REMEDY, code="quirks_invalid")
