"""Answers that broke off, and what of each of them a client may go on from (docs/decisions/0019)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from turnstile.conversation import Message, ReplyFinish, Role, Usage
from turnstile.generation import Cut, Finish, NodeRef, Note
from turnstile.history.equality import continued
from turnstile.journal import CallFailed, CallStarted, PartialChoice, SampledChoice
from turnstile.reasons import NoteCode
from turnstile.tokens import IdRun


class Taken(msgspec.Struct, frozen=True):
    """The beginning of a broken-off answer, up to the end of one of its items."""

    message: Message
    """Its items up to there, as one message."""
    length_S: int
    """How many ids it has."""


class BrokenOff(msgspec.Struct, frozen=True):
    """One choice of a failed call of which clients had been told something whole."""

    ref: NodeRef
    prompt_length: int
    ids_S: IdRun
    """All that was sampled."""
    partial: PartialChoice

    def beginnings(self) -> Iterator[Taken]:
        """What a client may bring back of it, the longest first."""
        found: list[Taken] = []
        message = Message(Role.ASSISTANT)
        for item in self.partial.items:
            message = continued(message, item.said)
            if item.end_S:
                found.append(Taken(message, item.end_S))
        yield from reversed(found)

    def choice(self, length_S: int) -> SampledChoice:
        """The completion that its beginning of so many ids is.

        Raises: ValueError if no item ends there.
        """
        taken = next((each for each in self.beginnings() if each.length_S == length_S), None)
        if taken is None:
            raise ValueError(f"no item of {self.ref} ends with its id {length_S}")
        partial = self.partial
        return SampledChoice(
            choice=self.ref.choice,
            ids_S=self.ids_S.slice(0, length_S),
            logprobs_S=None if partial.logprobs_S is None else partial.logprobs_S.slice(0, length_S),
            message=taken.message,
            reply_finish=ReplyFinish.LENGTH,
            finish=Finish.ABORT,
            engine_finish_reason="",
            usage=Usage(prompt_tokens=self.prompt_length, completion_tokens=length_S),
            logprobs_mode=partial.logprobs_mode,
            logprobs_temperature=partial.logprobs_temperature,
            cut=Cut.CONTENT,
            policy_min=partial.policy_min,
            policy_max=partial.policy_max,
            notes=(Note(NoteCode.CONTINUED_FROM_ABORTED, f"{length_S} of {len(self.ids_S)} ids"),),
            placeholders_S=tuple(at for at in partial.placeholders_S if at < length_S),
        )


def broken_off(started: CallStarted, failed: CallFailed) -> Sequence[BrokenOff]:
    """The choices of a failed call that a client may go on from."""
    prompt_length = started.held_length + len(started.added_A)
    runs = (failed.partial_S, *failed.other_partials_S)
    return tuple(
        BrokenOff(NodeRef(started.call_id, choice), prompt_length, ids_S, partial)
        for choice, (ids_S, partial) in enumerate(zip(runs, failed.partials, strict=False))
        if any(item.end_S for item in partial.items)
    )
