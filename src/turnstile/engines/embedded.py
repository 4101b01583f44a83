"""A real small model with no GPU and no torch: a llama.cpp server in a child process that Turnstile looks after."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import secrets
import signal
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import IO

import msgspec

from turnstile.engines.base import Capabilities
from turnstile.engines.embedded_child import ChildReport, ChildSettings
from turnstile.engines.llamacpp import LlamaCpp, LlamaServer, random_seed
from turnstile.engines.smollm import MODEL_NAME, ShowProgress, model_file, say_nothing
from turnstile.errors import EngineError
from turnstile.generation import Draw, Emit, Generation, Prompt
from turnstile.tokens import IdRun, Vocabulary

START_LIMIT_S = 60.0
_STOP_LIMIT_S = 5.0
_CHILD_PROGRAM = Path(__file__).with_name("embedded_child.py")
_LOG_TAIL_BYTES = 400


class EmbeddedSettings(msgspec.Struct, frozen=True):
    """How the embedded engine is run."""

    cache_home: Path
    """The user's cache folder; the model is kept below it."""
    context: int = 8192
    """Ids of prompt and completion together, in each slot. SmolLM2 was trained with 8192."""
    slots: int = 2
    """Answers that are sampled at once."""
    threads: int = 0
    """0 = half of the machine's cores, and at least one."""


def tools_template() -> str:
    """A ChatML template with tools, for models whose own template has none, such as SmolLM2's."""
    return files("turnstile.engines").joinpath("chatml_tools.jinja").read_text(encoding="utf-8")


def cache_home() -> Path:
    """The user's cache folder, by the XDG base directory specification."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def _without_keys(environment: Mapping[str, str]) -> dict[str, str]:
    """What a child process may know: it runs native code on what agents send, and needs no key of Turnstile's."""
    return {name: value for name, value in environment.items() if not _SECRET.fullmatch(name)}


_SECRET = re.compile(r"TURNSTILE_\w*KEYS?")


class _Child:
    """One life of the child process."""

    def __init__(self, process: Process, log: IO[bytes], url: str) -> None:
        self.process = process
        self.url = url
        self._log = log

    @classmethod
    async def start(cls, settings: ChildSettings) -> _Child:
        if importlib.util.find_spec("xllamacpp") is None:
            raise EngineError(
                "The embedded engine needs the package xllamacpp",
                remedy="In the clone: `pip install '.[demo]'`, or `make demo`",
                code="engine_missing",
                status=503,
            )
        log = tempfile.TemporaryFile(prefix="turnstile-engine-")  # noqa: SIM115 - open as long as the child lives
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            str(_CHILD_PROGRAM),
            stdin=PIPE,
            stdout=PIPE,
            stderr=log,
            env=_without_keys(os.environ),
        )
        child = cls(process, log, "")
        try:
            async with asyncio.timeout(START_LIMIT_S):
                report = await child._first_report(settings)
        except BaseException:
            await child.stop()
            raise
        if not report.url:
            problem = child.failed(f"did not start: {report.error}")
            await child.stop()
            raise problem
        child.url = report.url
        return child

    async def _first_report(self, settings: ChildSettings) -> ChildReport:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(msgspec.json.encode(settings) + b"\n")
        line = await self.process.stdout.readline()
        if not line:
            await self.process.wait()
            return ChildReport(error=self.death())
        return msgspec.json.decode(line, type=ChildReport)

    @property
    def is_dead(self) -> bool:
        return self.process.returncode is not None

    def death(self) -> str:
        """How the process ended."""
        code = self.process.returncode
        if code is None:
            return "it is still running"
        return f"it was ended by {signal.Signals(-code).name}" if code < 0 else f"it ended with status {code}"

    def failed(self, what: str) -> EngineError:
        """An error that shows the end of the engine's log."""
        self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, self._log.tell() - _LOG_TAIL_BYTES))
        tail = self._log.read().decode(errors="replace").strip().splitlines()[-2:]
        said = f"; its log ends: {' / '.join(tail)}" if tail else ""
        return EngineError(
            f"The embedded engine {what}{said}",
            remedy="The next request starts it again; if this repeats, check that the machine has memory to spare",
            code="engine_unreachable",
        )

    async def stop(self) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()
        if self.process.returncode is None:
            try:
                async with asyncio.timeout(_STOP_LIMIT_S):
                    await self.process.wait()
            except TimeoutError:
                self.process.kill()
                await self.process.wait()
        self._log.close()


class EmbeddedServer:
    """The child and its server. `speaking` makes it an engine."""

    def __init__(self, settings: ChildSettings, child: _Child, server: LlamaServer) -> None:
        self._settings = settings
        self._child = child
        self._server = server
        self._starting = asyncio.Lock()

    @classmethod
    async def open(cls, settings: EmbeddedSettings, show: ShowProgress = say_nothing) -> EmbeddedServer:
        """Fetch the model if need be, start the child and wait until it serves.

        Raises: EngineError `engine_missing`, `model_unavailable` or `engine_unreachable`.
        """
        model = await model_file(settings.cache_home, show)
        child_settings = ChildSettings(
            model_path=str(model),
            model_name=MODEL_NAME,
            api_key=secrets.token_urlsafe(24),
            context=settings.context,
            slots=settings.slots,
            threads=settings.threads or max(1, (os.cpu_count() or 2) // 2),
        )
        child = await _Child.start(child_settings)
        try:
            server = await LlamaServer.open(child.url, child_settings.api_key, name="embedded")
        except BaseException:
            await child.stop()
            raise
        return cls(child_settings, child, server)

    @property
    def capabilities(self) -> Capabilities:
        """What the engine can do, with the template that it ships."""
        return msgspec.structs.replace(self._server.capabilities, chat_template=tools_template())

    @property
    def model_path(self) -> str:
        """The gguf on this machine."""
        return self._settings.model_path

    @property
    def url(self) -> str:
        """Where the child answers; loopback only, and only with its key."""
        return self._child.url

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._child.process.pid

    def speaking(self, vocabulary: Vocabulary, seeds: Callable[[], int] = random_seed) -> Embedded:
        """The engine, once the tokenizer is known."""
        return Embedded(self, self._server.speaking(vocabulary, seeds))

    async def tokenize(self, text: str) -> IdRun | None:
        """How the model turns text into ids. Raises: EngineError."""
        return await self._server.tokenize(text)

    async def ready(self) -> None:
        """Start the child again if it has died. Raises: EngineError if it does not come up."""
        async with self._starting:
            if self._child.is_dead:
                await self._child.stop()
                self._child = await _Child.start(self._settings)
                self._server.wire.move_to(self._child.url)

    async def crash(self, problem: EngineError) -> EngineError:
        """What to say of a call that broke: the child's death, if it died."""
        child = self._child
        if not child.is_dead:
            # The connection breaks a moment before the system reports the death.
            try:
                async with asyncio.timeout(1.0):
                    await child.process.wait()
            except TimeoutError:
                return problem
        return child.failed(f"crashed while it was sampling: {child.death()}")

    async def health(self) -> str:
        """Empty if it is ready, else what is wrong, as a sentence."""
        if self._child.is_dead:
            return f"The embedded engine is down: {self._child.death()}; the next request starts it again."
        return await self._server.health()

    async def close(self) -> None:
        """Stop the child."""
        await self._server.close()
        await self._child.stop()


class Embedded:
    """The engine in the child process."""

    def __init__(self, server: EmbeddedServer, engine: LlamaCpp) -> None:
        self._server = server
        self._engine = engine

    @property
    def capabilities(self) -> Capabilities:
        """What it can do; fixed after start."""
        return self._server.capabilities

    async def generate(self, prompt: Prompt, draw: Draw, emit: Emit) -> Generation:
        """Sample one completion; see `Engine.generate`. A child that died is started again first."""
        await self._server.ready()
        try:
            return await self._engine.generate(prompt, draw, emit)
        except EngineError as problem:
            if problem.code != "engine_unreachable":
                raise
            raise await self._server.crash(problem) from problem

    async def health(self) -> str:
        """Empty if it is ready, else what is wrong, as a sentence."""
        return await self._server.health()

    async def close(self) -> None:
        """Stop the child."""
        await self._server.close()
