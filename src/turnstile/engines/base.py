"""The seam between the one path and an inference engine: ids in, ids and log-probabilities out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import msgspec

from turnstile.conversation import Message
from turnstile.generation import Draw, Emit, Generation, Note, Prompt
from turnstile.reasons import NoteCode
from turnstile.tokens import IdRun

ENFORCED = "JSON schemas and grammars"
"""What `Present` and `Missing` call the holding of an answer to a schema or grammar."""
WINDOW = "context length"
"""What `Present` calls the length of the window, which is the one thing of all that may differ in a pool."""


class Missing(msgspec.Struct, frozen=True):
    """Something that an engine, as it was started, does not do or does not say."""

    what: str
    """A few words, such as `incremental stream`."""
    cost: str
    """What that costs its user, one sentence without a final full stop."""
    remedy: str
    """The flag or setting that turns it on, one sentence without a final full stop; empty = there is none."""


class Present(msgspec.Struct, frozen=True):
    """Something that an engine was seen to do at start."""

    what: str
    """A few words, such as `log-probabilities`."""
    how: str
    """What was found, a few words."""


class Capabilities(msgspec.Struct, frozen=True):
    """What an engine really does, measured or read from it at start. Nothing here is assumed."""

    engine: str
    """`llamacpp`, `embedded`, ..."""
    version: str
    """The engine's own word; `unknown` if it has none."""
    models: tuple[str, ...]
    """Served names, as `/v1/models` answers."""
    context_length: int | None
    """Ids of prompt and completion together; None = unknown."""
    concurrency: int | None
    """Sequences that are sampled at once; None = the engine decides."""
    vocab_size: int | None
    chat_template: str
    """The template that the engine itself would use; empty = it cannot say."""
    honours: frozenset[str]
    """Names of `Draw` fields that change what it samples."""
    constraints: frozenset[str]
    """Tags of the constraints that it can enforce: `schema`, `grammar`; `calls`: those that its own parser reads."""
    max_top_logprobs: int
    echoes_prompt_ids: str
    """`ids`, `count` or `no`: what it says about the prompt that it ran."""
    images: str = "none"
    """How it takes images: `none`, or `collapsed` = their bytes beside one placeholder id each."""
    missing: tuple[Missing, ...] = ()
    """What it cannot do or say, as it was started; shown at start."""
    present: tuple[Present, ...] = ()
    """What it can, shown beside that."""
    reads_answers: bool = False
    """Whether its own parser can be asked to read an answer, tool calls and reasoning apart (`Prompt.read_with`)."""


class Engine(Protocol):
    """A running engine. One instance serves all rollouts of a process."""

    @property
    def capabilities(self) -> Capabilities:
        """What it can do; fixed after start."""
        ...

    async def generate(self, prompt: Prompt, draw: Draw, emit: Emit) -> Generation:
        """Sample one completion, handing ids to `emit` as they come.

        Cancelling the call aborts the sampling upstream.
        Raises: EngineError, with the engine's own status where it gave one; CallerError for a context overflow.
        """
        ...

    async def health(self) -> str:
        """Empty if it is ready, else what is wrong, as a sentence."""
        ...

    async def close(self) -> None:
        """Let go of connections and child processes."""
        ...


@runtime_checkable
class ChatRenderer(Protocol):
    """An engine that says which ids its own chat route would make of a conversation."""

    async def chat_ids(self, messages: tuple[Message, ...]) -> IdRun | None:
        """The prompt of an answer to messages of text, by its own template; None if it cannot say.

        Raises: EngineError.
        """
        ...


@runtime_checkable
class PolicyTeller(Protocol):
    """An engine that can be asked which weights it has now. It is asked where a generation names none."""

    async def policy_label(self) -> str:
        """What it calls the weights that it samples with now; empty: it cannot say at the moment."""
        ...


@runtime_checkable
class TokenizerTeller(Protocol):
    """An engine that cannot tokenize and says which tokenizer its ids are of."""

    @property
    def tokenizer_sha256(self) -> str:
        """sha256 of the bytes of its `tokenizer.json`, hex."""
        ...


def counted(found: Mapping[NoteCode, int]) -> tuple[Note, ...]:
    """One note a code with how often it was found, for those that were."""
    return tuple(Note(code, f"n={count}") for code, count in found.items() if count)
