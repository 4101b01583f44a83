"""What a candidate gains, as parts. A call leaves as one part, when it is whole."""

from __future__ import annotations

from collections.abc import Iterable
from typing import final

from msgspec import UNSET, Raw

from turnstile.conversation import ReplyDelta, ToolCallDelta
from turnstile.protocols.gemini_answer import WireCalled, WirePart
from turnstile.protocols.gemini_decode import ThoughtDisplay
from turnstile.protocols.object_arguments import input_of

NOTHING = WirePart(text="")
"""What a content holds that has nothing to say: clients take one without parts for a broken answer."""


@final
class PartWriter:
    """The parts of one candidate.

    Each call carries the signature, since clients echo it part for part, and so does the first thought. A text that
    stands alone has none.
    """

    def __init__(self, signature: str, thoughts: ThoughtDisplay) -> None:
        """Begin before the first part.

        Args:
            signature: what names the answer when it comes back.
            thoughts: whether they are shown.
        """
        self._signature = signature
        self._thoughts = thoughts
        self._thought = False
        self._call = ToolCallDelta(-1)
        """The call that is being written; index -1: none."""

    def gain(self, delta: ReplyDelta) -> list[WirePart]:
        """The parts of one delta, in its order: reasoning, content, calls."""
        parts: list[WirePart] = []
        if delta.reasoning and self._thoughts is ThoughtDisplay.SHOWN:
            mark = UNSET if self._thought else self._signature
            self._thought = True
            parts += [*self.close(), WirePart(text=delta.reasoning, thought=True, thought_signature=mark)]
        if delta.content:
            parts += [*self.close(), WirePart(text=delta.content)]
        for call in delta.calls:
            parts += self._called(call)
        return parts

    def close(self) -> list[WirePart]:
        """The call that was being written, if there is one."""
        call = self._call
        if call.index < 0:
            return []
        self._call = ToolCallDelta(-1)
        called = WireCalled(call.call_id, call.name, Raw(input_of(call.arguments).encode()))
        return [WirePart(function_call=called, thought_signature=self._signature)]

    def _called(self, gained: ToolCallDelta) -> list[WirePart]:
        before: list[WirePart] = []
        if gained.call_id or gained.name:
            before = self.close()
            self._call = gained
        elif gained.arguments:
            if gained.index != self._call.index:
                raise RuntimeError(f"arguments of call {gained.index} came while another was being written")
            whole = self._call.arguments + gained.arguments
            self._call = ToolCallDelta(gained.index, self._call.call_id, self._call.name, whole)
        return [*before, *self.close()] if gained.is_last else before


def merged(parts: Iterable[WirePart]) -> list[WirePart]:
    """Parts with neighbouring texts as one, and neighbouring thoughts."""
    whole: list[WirePart] = []
    for part in parts:
        last = whole[-1] if whole else NOTHING
        if isinstance(last.text, str) and isinstance(part.text, str) and whole and last.thought is part.thought:
            whole[-1] = WirePart(last.text + part.text, last.thought, thought_signature=last.thought_signature)
        else:
            whole.append(part)
    return whole
