"""Whether the engine reads text as our tokenizer does: asked once, before anything is recorded (public case A2)."""

from __future__ import annotations

from datetime import datetime

from turnstile.conversation import Message, Role, Text
from turnstile.engines import EngineServer
from turnstile.engines.base import ChatRenderer, TokenizerTeller
from turnstile.errors import CallerError
from turnstile.templates.render import GenerationPrompt, TemplateFailed
from turnstile.templates.served import Scene, Served, leading_system, render
from turnstile.tokens import IdRun, first_difference

_SAMPLE = "Read `src/main.py`:\n\n\tdef area(r):\n    return 3.14159 * r**2  # m²\n日本語, naïve, 🙂 1234567"
_TALKS = (
    (
        Message(Role.SYSTEM, (Text("Be brief."),)),
        Message(Role.USER, (Text(_SAMPLE),)),
        Message(Role.ASSISTANT, (Text("Yes."),)),
        Message(Role.USER, (Text(_SAMPLE),)),
    ),
    (Message(Role.USER, (Text(_SAMPLE),)),),
)


async def check_parity(engine: EngineServer, served: Served, now: datetime) -> str:
    """Compare how the engine and we turn one rendered conversation into ids.

    Returns: empty if they agree, else a notice: the engine cannot be asked, or its own chat route makes another prompt.
    Raises: CallerError `tokenizer_parity` if they differ: every id that we would send means something else to it.
    """
    if isinstance(engine, TokenizerTeller):
        _refuse_other_tokenizer(engine.tokenizer_sha256, served.tokenizer.sha256)
        return ""
    text, talk = _rendered(served, now)
    theirs_T = await engine.tokenize(text)
    if theirs_T is None:
        return "The engine cannot be asked how it tokenizes: that --tokenizer is its own was not checked"
    ours_T = served.tokenizer.encode(text)
    at = first_difference(ours_T, theirs_T)
    if at is None:
        return await _chat_notice(engine, talk, ours_T)
    ours, theirs = (run.slice(at, min(len(run), at + 4)).tolist() for run in (ours_T, theirs_T))
    raise CallerError(
        f"The engine tokenizes otherwise than --tokenizer: at index {at} it has {theirs}, we have {ours}",
        "Give the folder of the very model that the engine serves",
        code="tokenizer_parity",
    )


def _refuse_other_tokenizer(theirs: str, ours: str) -> None:
    if theirs != ours:
        raise CallerError(
            f"The engine's ids are of a tokenizer.json with the sha256 {theirs or '(none)'}, --tokenizer has {ours}",
            "Give the folder of the very model that the engine serves, or start the engine with this one",
            code="tokenizer_parity",
        )


async def _chat_notice(engine: EngineServer, talk: tuple[Message, ...], ours_T: IdRun) -> str:
    """What to tell where the engine's own chat route would run another prompt: a second BOS, or another template."""
    theirs_T = await engine.chat_ids(talk) if talk and isinstance(engine, ChatRenderer) else None
    at = None if theirs_T is None else first_difference(ours_T, theirs_T)
    if at is None or theirs_T is None:
        return ""
    ours, theirs = (run.slice(at, min(len(run), at + 4)).tolist() for run in (ours_T, theirs_T))
    return (
        f"The engine's own chat route makes another prompt of a conversation than the template here: at index {at} it "
        f"has {theirs}, we have {ours}. Ours is what is run; give its template with --template if that is not meant"
    )


def _rendered(served: Served, now: datetime) -> tuple[str, tuple[Message, ...]]:
    """A conversation as text, and its messages; a mere text, where the template can render none."""
    for talk in _TALKS:
        try:
            return render(served, Scene(leading_system(talk), (), "{}", now), talk, GenerationPrompt.ADD), talk
        except TemplateFailed:
            continue
    return _SAMPLE, ()
