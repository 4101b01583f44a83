"""What must hold of every answer before it becomes a turn (splice.md 3.6, laws 1 and 2).

A contradiction (other prompt ids, impossible ids) is an EngineError and nothing is stored as a turn. What is
only missing makes the turn incomplete: stored, masked, reported. Nothing is ever filled in.
"""

from __future__ import annotations

import msgspec

from turnstile.errors import EchoMismatch, EngineError
from turnstile.generation import Draw, Finish, Generation, LogprobsMode, Note, Prompt
from turnstile.journal import ImageRun
from turnstile.reasons import IncompleteReason, NoteCode
from turnstile.tokens import IdRun, Vocabulary, first_difference

SUSPICIOUS_ZEROS = 8
"""So many log-probabilities of exactly 0.0 at a temperature above 0 are no accident (public case D3)."""


class Verdict(msgspec.Struct, frozen=True):
    """What verification found."""

    finish: Finish
    """Derived from the ids; the engine's label stands beside it."""
    incomplete: tuple[IncompleteReason, ...]
    notes: tuple[Note, ...]
    placeholders_S: tuple[int, ...] = ()
    """Indices of sampled ids that are an image's placeholder."""
    image_runs: tuple[ImageRun, ...] = ()
    """What was run for the last images of the prompt (`SampledChoice.image_runs`)."""


def verify(
    prompt: Prompt, draw: Draw, generation: Generation, vocabulary: Vocabulary, placeholder_id: int | None = None
) -> Verdict:
    """Check one completion against what was asked; where the prompt has images, `with_images` checks its echo.

    Args:
        prompt: what the engine was to run.
        draw: how it was to sample.
        generation: what it answered.
        vocabulary: of the served model.
        placeholder_id: what stands for an image in prompts; None if the model is shown none.

    Raises: EchoMismatch if the engine ran other prompt ids; EngineError if it answered what cannot be true.
    """
    if not prompt.media:
        _check_echo(prompt, generation)
    _check_ids(generation.ids_S, vocabulary)
    incomplete: list[IncompleteReason] = []
    notes: list[Note] = []
    if len(generation.ids_S) != generation.usage.completion_tokens:
        incomplete.append(IncompleteReason.IDS_INCOMPLETE)
    _weigh_logprobs(draw, generation, incomplete, notes)
    finish = _finish(draw, generation, incomplete, notes)
    notes += _control_tokens(draw, generation.ids_S, vocabulary)
    placeholders_S = tuple(at for at, token_id in enumerate(generation.ids_S) if token_id == placeholder_id)
    notes += [Note(NoteCode.SAMPLED_PLACEHOLDER, f"at={at}") for at in placeholders_S]
    return Verdict(finish, tuple(incomplete), tuple(notes), placeholders_S)


def _check_echo(prompt: Prompt, generation: Generation) -> None:
    echo = generation.prompt_echo_T
    if echo is not None and (at := first_difference(prompt.ids_T, echo)) is not None:
        raise EchoMismatch(
            f"The engine ran other prompt ids than the {len(prompt)} it was given (echo_mismatch at={at})",
            "Serve the model with the tokenizer and template that Turnstile was started with",
        )
    if generation.usage.prompt_tokens != len(prompt):
        raise EchoMismatch(
            f"The engine counted {generation.usage.prompt_tokens} prompt ids, but was given {len(prompt)}",
            "Check that nothing between Turnstile and the engine changes requests",
        )


def _check_ids(ids_S: IdRun, vocabulary: Vocabulary) -> None:
    size = vocabulary.size
    for at, token_id in enumerate(ids_S):
        if not 0 <= token_id < size:
            raise EngineError(
                f"The engine sampled id {token_id} at index {at}, but the vocabulary has {size} ids",
                "Start Turnstile with the tokenizer of the model that the engine serves",
                code="engine_broken",
            )


def _weigh_logprobs(draw: Draw, generation: Generation, incomplete: list[IncompleteReason], notes: list[Note]) -> None:
    logprobs_S = generation.logprobs_S
    if logprobs_S is None or generation.logprobs_mode is LogprobsMode.NONE:
        incomplete.append(IncompleteReason.LOGPROBS_MISSING)
        return
    if len(logprobs_S) != len(generation.ids_S):
        incomplete.append(IncompleteReason.COUNT_MISMATCH)
        return
    values = logprobs_S.tolist()
    if values and len(logprobs_S.unknown) == len(values):
        incomplete.append(IncompleteReason.LOGPROBS_MISSING)
    if draw.temperature > 0 and len(values) >= SUSPICIOUS_ZEROS and all(value == 0.0 for value in values):
        notes.append(Note(NoteCode.LOGPROBS_ALL_ZERO, f"n={len(values)}"))


def _finish(draw: Draw, generation: Generation, incomplete: list[IncompleteReason], notes: list[Note]) -> Finish:
    ids_S = generation.ids_S
    ended_by_token = bool(ids_S) and ids_S[-1] in draw.stop_ids
    if generation.finish in (Finish.ABORT, Finish.ERROR):
        incomplete.append(IncompleteReason.UPSTREAM_TRUNCATED)
        return generation.finish
    if ended_by_token or generation.stop_string:
        derived = Finish.STOP
    elif generation.finish is Finish.STOP:
        incomplete.append(IncompleteReason.STOP_UNKNOWN)
        return Finish.STOP
    else:
        derived = Finish.LENGTH
    if derived is not generation.finish:
        notes.append(Note(NoteCode.FINISH_CONFLICT, f"engine={generation.finish} ids={derived}"))
    return derived


def _control_tokens(draw: Draw, ids_S: IdRun, vocabulary: Vocabulary) -> list[Note]:
    inner = ids_S.tolist()[:-1]
    stray = [at for at, token_id in enumerate(inner) if token_id in draw.stop_ids]
    return [Note(NoteCode.SAMPLED_CONTROL_TOKEN, f"stop id at {at}") for at in stray]
