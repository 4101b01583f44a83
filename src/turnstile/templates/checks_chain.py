"""Check 9 of a certificate: sixteen turns whose ids grow by bridges alone, held against one whole render at the end."""

from __future__ import annotations

import msgspec

from turnstile.conversation import Call, JsonText, Message, Role
from turnstile.generation import Cut, HeldAnswer, NodeRef
from turnstile.templates.bridge import bridge
from turnstile.templates.certificate import Chain, ChainOutcome
from turnstile.templates.checks_shapes import NOW, as_sampled, ending_behind
from turnstile.templates.render import GenerationPrompt, TemplateFailed
from turnstile.templates.served import Refusal, Scene, Served, render
from turnstile.templates.shapes import PAST, RARE, TOOLS, calling, resulting, said
from turnstile.tokens import IdRun, first_difference

TURNS = 16
_USER_EVERY = 4
"""Three turns with a tool, then one of a user's."""
_DECLARATIONS = tuple(tool.declaration for tool in TOOLS)


class _Turn(msgspec.Struct, frozen=True):
    """What the model says, and what comes next."""

    word: str
    """Ends the answer's body, and occurs once."""
    answer: Message
    new: Message


class _Grown(msgspec.Struct, frozen=True):
    """A rollout so far. Shapes: held_T [T]."""

    messages: tuple[Message, ...]
    prompt: str
    """The whole render of the messages with a generation prompt."""
    held_T: IdRun
    """Ids of a first whole render, then of bridges and samples only."""
    encoded_from: int
    """A character of the prompt, in front of its last turn, at which it may be cut for encoding."""


class _Stopped(msgspec.Struct, frozen=True):
    """Why a chain goes no further."""

    outcome: ChainOutcome
    detail: str


def check_chain(served: Served, kwargs: JsonText, thinking: str) -> Chain:
    """Sixteen turns.

    Args:
        served: the model.
        kwargs: template arguments.
        thinking: what the model thinks in each turn; empty: it does not.
    """
    served = served.for_tools(_DECLARATIONS)
    is_thinking = bool(thinking)
    scene = Scene((), _DECLARATIONS, kwargs, NOW)
    try:
        prompt = render(served, scene, PAST, GenerationPrompt.ADD)
    except TemplateFailed as failure:
        return Chain(is_thinking, ChainOutcome.REFUSED, 1, failure.problem)
    grown = _Grown(PAST, prompt, served.tokenizer.encode(prompt), 0)
    for at in range(TURNS):
        grew = _grow(served, scene, grown, _turn(served, at, thinking))
        if isinstance(grew, _Stopped):
            return Chain(is_thinking, grew.outcome, at + 1, grew.detail)
        grown = grew
    difference = first_difference(grown.held_T, served.tokenizer.encode(grown.prompt))
    if difference is None:
        return Chain(is_thinking, ChainOutcome.EXACT, TURNS, "")
    return Chain(is_thinking, ChainOutcome.DIFFERENT, TURNS, f"The ids differ from token {difference} on")


def _turn(served: Served, at: int, thinking: str) -> _Turn:
    word = f"{RARE}{chr(ord('a') + at)}"
    if at % _USER_EVERY == _USER_EVERY - 1:
        answer = said(Role.ASSISTANT, f"That was the {word}", reasoning=thinking)
        return _Turn(word, answer, said(Role.USER, "Look further."))
    prefix = f"chaincl{chr(ord('a') + at)}"
    answer = calling(("shell", f'{{"command":"cat {word}"}}'), reasoning=thinking, prefix=prefix)
    if served.facts.drops_calls:
        answer = msgspec.structs.replace(answer, parts=said(Role.ASSISTANT, f"$ cat {word}").parts)
    return _Turn(word, answer, resulting(f"line {at}", prefix=prefix))


def _grow(served: Served, scene: Scene, grown: _Grown, turn: _Turn) -> _Grown | _Stopped:
    messages = (*grown.messages, turn.answer, turn.new)
    try:
        prompt = render(served, scene, messages, GenerationPrompt.ADD)
    except TemplateFailed as failure:
        return _Stopped(ChainOutcome.REFUSED, failure.problem)
    sampled = _sampled(served, grown, prompt, turn.word)
    if isinstance(sampled, _Stopped):
        return sampled
    held_T, kept_T = as_sampled(served, grown.held_T + sampled)
    held = HeldAnswer(NodeRef("certificate"), held_T, turn.answer, Cut.NONE, grown.messages)
    call = Call("certificate", "", messages, tools=TOOLS, template_kwargs=scene.kwargs)
    built = bridge(served, held, (turn.new,), call, NOW)
    if isinstance(built, Refusal):
        return _Stopped(ChainOutcome.REFUSED, built.detail)
    if built.kept_T != kept_T:
        return _Stopped(ChainOutcome.REFUSED, "The sampled stop token is not the one that this history has there")
    return _Grown(messages, prompt, held_T.slice(0, kept_T) + built.added_A, prompt.index(turn.word))


def _sampled(served: Served, grown: _Grown, prompt: str, word: str) -> IdRun | _Stopped:
    """The ids of the answer with its ending, as they are in the whole render.

    Qwen3.8's generation prompt ends in a line break, and its render of an answer without thinking adds another one:
    together they are one token, so what was sampled cannot have been that.
    """
    if not prompt.startswith(grown.prompt):
        return _Stopped(ChainOutcome.REWRITES, "The template writes what stands before this answer in another way now")
    at = prompt.find(word, len(grown.prompt))
    end = ending_behind(served, prompt, at + len(word)) if at >= 0 else None
    if end is None:
        return _Stopped(ChainOutcome.REFUSED, "The template does not print the answer, or ends it with no stop token")
    encoded = served.tokenizer.encode_with_offsets(prompt[grown.encoded_from : end])
    start = len(grown.prompt) - grown.encoded_from
    first = next((at for at, (begins, _) in enumerate(encoded.offsets) if begins >= start), len(encoded.ids))
    if first and encoded.offsets[first - 1][1] > start:
        return _Stopped(ChainOutcome.REWRITES, "The generation prompt and what is printed behind it share a token")
    return encoded.ids.slice(first)
