"""What the options name on this machine, read before an engine is asked."""

from __future__ import annotations

import mmap
from pathlib import Path

import msgspec

from turnstile.config import Settings
from turnstile.engines import EMBEDDED, EngineServer
from turnstile.errors import CallerError
from turnstile.protocols.quirks import FileForm, Quirk, chosen_quirks, read_quirks
from turnstile.server.certificates import refuse_slow_template
from turnstile.server.fleet import engine_names
from turnstile.server.plugins import plugin_named
from turnstile.server.reading import format_of
from turnstile.templates.files import ModelFiles
from turnstile.templates.gguf import tokenizer_files
from turnstile.templates.plugins.base import Plugin


class LocalFiles(msgspec.Struct, frozen=True):
    """What the options name on this machine."""

    template: str | None
    """The text of --template."""
    files: ModelFiles | None
    """What --tokenizer holds; None = the embedded model brings its own."""
    quirks: tuple[Quirk, ...]
    """Which habits of harnesses are acted on."""
    plugin: Plugin | None
    """Whose bridges are asked to confirm ours."""


def local_files(settings: Settings) -> LocalFiles:
    """Read what can be read, and refuse what can be refused, before an engine is asked.

    Raises: CallerError on an address, option or file that cannot be used, ModelFilesError, TooSlow.
    """
    engine_names((settings.engine, *settings.more_engines))
    template = _text(settings.template) if settings.template else None
    quirks = _quirks(settings)
    plugin = plugin_named(settings.plugin_bridges)
    if settings.tokenizer is not None:
        files = read_model_folder(settings.tokenizer, template)
        format_of(settings.answer_format, files)
        refuse_slow_template(files)
        return LocalFiles(template, files, quirks, plugin)
    if settings.engine != EMBEDDED:
        raise CallerError(
            "The engine at a URL needs a tokenizer",
            "Give the folder with the model's tokenizer.json: --tokenizer DIR",
            code="tokenizer_needed",
        )
    return LocalFiles(template, None, quirks, plugin)


def _quirks(settings: Settings) -> tuple[Quirk, ...]:
    """The table to act on, as --quirks and --no-quirk say. Raises: CallerError."""
    own: tuple[Quirk, ...] = ()
    if settings.quirks is not None:
        form = FileForm.JSON if settings.quirks.suffix == ".json" else FileForm.TOML
        own = read_quirks(_text(settings.quirks), form)
    return chosen_quirks(own, settings.no_quirks)


def embedded_files(local: LocalFiles, engine: EngineServer) -> ModelFiles:
    """What the embedded model's own file holds; a template that was named stands in for its own.

    Raises: ModelFilesError, TooSlow.
    """
    with Path(engine.model_path).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        files = tokenizer_files(memoryview(view))
    files = msgspec.structs.replace(files, chat_template=local.template or engine.capabilities.chat_template)
    refuse_slow_template(files)
    return files


def read_model_folder(folder: Path, template: str | None = None) -> ModelFiles:
    """The texts of a Hugging Face model folder; `template` stands in for its own.

    Raises: CallerError if there is no tokenizer.json or a file is no text, ModelFilesError if one cannot be used.
    """
    tokenizer = folder / "tokenizer.json"
    if not tokenizer.is_file():
        raise CallerError(
            f"There is no tokenizer.json in `{folder}`",
            "Give a model folder as its publisher has it, on this machine: nothing is downloaded by a model's name",
            code="tokenizer_missing",
        )

    def text(name: str) -> str | None:
        file = folder / name
        return _text(file) if file.is_file() else None

    return ModelFiles.from_texts(
        _text(tokenizer),
        text("tokenizer_config.json"),
        template or text("chat_template.jinja"),
        text("generation_config.json"),
        text("special_tokens_map.json"),
    )


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CallerError(
            f"Cannot read `{file}`: {error}", "Give a UTF-8 text file that this user can read", code="file_unreadable"
        ) from error
