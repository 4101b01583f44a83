"""The scripted engine of the chaos runs: llama.cpp's wire, answers of random words, no two alike."""

from __future__ import annotations

import importlib.util
import random
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from turnstile.templates.tokenizer import Tokenizer

sys.path.append(str(Path(__file__).resolve().parents[1] / "fakes"))
from llamacpp_fake import LlamaFake
from wired import Rows

ROOT = Path(__file__).resolve().parents[2]


def load(file: Path) -> ModuleType:
    """A module by its file, once."""
    name = file.stem
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


@dataclass
class Scripted:
    """A fake engine that runs, and can be taken down."""

    fake: Any
    url: str
    _running: ExitStack

    def die(self) -> None:
        """End it: what runs breaks off, and nothing listens at its address any more."""
        self._running.close()

    def rise(self) -> None:
        """Start it again at the same address; it remembers nothing of what it ran."""
        self._running.enter_context(self.fake.in_thread(self.fake.port))


@contextmanager
def scripted(folder: Path, seed: int, token_delay_s: float, calls: float = 0.0) -> Generator[Scripted]:
    """A model folder, and an engine for it that answers every prompt with other words.

    Args:
        folder: where the model folder is made.
        seed: of the words.
        token_delay_s: how long a token takes.
        calls: the share of answers that end in a tool call.
    """
    load(ROOT / "benchmarks" / "materials.py").Materials.make(folder, sampled=32)
    tokenizer = Tokenizer.from_json((folder / "tokenizer.json").read_text(encoding="utf-8"))
    special = frozenset(token.id for token in tokenizer.added if token.special)
    stop = tokenizer.id_of("<|im_end|>")
    assert stop is not None
    draw = random.Random(seed)
    words = [tokenizer.encode(f" {word}").tolist() for word in ("bal", "dor", "fin", "gus", "kel", "lum", "mar", "nor")]

    call = tokenizer.encode('\n<tool_call>\n{"name": "read_file", "arguments": {"path": "a"}}\n</tool_call>').tolist()

    def answer(_prompt: list[int]) -> list[int]:
        said = [token for word in draw.choices(words, k=draw.randint(4, 16)) for token in word]
        return [*said, *(call if draw.random() < calls else ()), stop]

    fake = LlamaFake(
        Rows(tokenizer), special=special, eos=frozenset((stop,)), model="m", slots=512, context=1 << 20,
        token_delay_s=token_delay_s, answer=answer,
    )  # fmt: skip
    fake.requests = _Nothing()
    with ExitStack() as running:
        yield Scripted(fake, running.enter_context(fake.in_thread()), running)


class _Nothing(list[Any]):
    """A list that forgets: a long run's requests would fill the memory."""

    def append(self, _item: object, /) -> None:
        """Forget it."""
