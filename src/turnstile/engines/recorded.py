"""An engine that gives back what another one once answered: what a replay runs on."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import final

import msgspec

from turnstile.conversation import Message, ReplyDelta, ToolCallDelta
from turnstile.engines.base import Capabilities
from turnstile.errors import EngineError
from turnstile.generation import Delta, Draw, Emit, Generation, Prompt
from turnstile.journal import SampledChoice

CAPABILITIES = Capabilities(
    engine="recorded",
    version="1",
    models=(),
    context_length=None,
    concurrency=None,
    vocab_size=None,
    chat_template="",
    honours=frozenset(Draw.__struct_fields__),
    constraints=frozenset({"free", "schema", "grammar", "calls"}),
    max_top_logprobs=2**31,
    echoes_prompt_ids="no",
    images="collapsed",
)
"""It refuses nothing: the engine that was asked first has already said what it takes."""


@final
class RecordedEngine:
    """Answers one call with its recorded choices, once it is told that their time has come."""

    def __init__(self, choices: tuple[SampledChoice, ...], broken: Mapping[int, Delta] | None = None) -> None:
        """Hold the answers back.

        Args:
            choices: what was sampled; none for a call that failed.
            broken: by choice, what a failed call had sampled, where a client may have gone on from it.
        """
        self._choices = {each.choice: each for each in choices}
        self._broken = broken or {}
        self._due = asyncio.Event()

    @property
    def capabilities(self) -> Capabilities:
        """Everything."""
        return CAPABILITIES

    def release(self) -> None:
        """Let the answers go out: the journal has come to the call's end."""
        self._due.set()

    async def generate(self, prompt: Prompt, draw: Draw, emit: Emit) -> Generation:
        """The recorded completion, whatever the prompt; nothing is emitted before it.

        Raises: EngineError if the call had failed, behind what it had sampled by then.
        """
        await self._due.wait()
        choice = self._choices.get(draw.choice)
        if choice is None:
            if (sampled := self._broken.get(draw.choice)) is not None:
                await emit(sampled)
            raise EngineError("The call failed when it was recorded", "")
        return recorded_generation(choice, len(prompt))

    async def health(self) -> str:
        """Always ready."""
        return ""

    async def close(self) -> None:
        """Hold nothing."""


def recorded_generation(choice: SampledChoice, prompt_tokens: int) -> Generation:
    """The completion as its engine gave it, for a prompt of so many ids."""
    return Generation(
        ids_S=choice.ids_S,
        logprobs_S=choice.logprobs_S,
        finish=choice.finish,
        engine_finish_reason=choice.engine_finish_reason,
        usage=msgspec.structs.replace(choice.usage, prompt_tokens=prompt_tokens),
        logprobs_mode=choice.logprobs_mode,
        logprobs_temperature=choice.logprobs_temperature,
        stop_string=choice.stop_string,
        engine_request_id=choice.engine_request_id,
        sampler_echo=choice.sampler_echo,
        said=_said(choice.message),
        policy_version=choice.policy_min if choice.policy_min == choice.policy_max else None,
    )


def _said(message: Message) -> ReplyDelta | None:
    """A recorded answer as an engine's own parser would tell it."""
    calls = tuple(ToolCallDelta(at, call.call_id, call.name, call.arguments) for at, call in enumerate(message.calls))
    told = ReplyDelta(0, message.reasoning, message.text, calls)
    return None if told.is_empty else told
