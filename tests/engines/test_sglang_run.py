from __future__ import annotations

import pytest

from turnstile.engines.sglang_run import Run
from turnstile.engines.sglang_shapes import Event, FinishReason, LogprobEntry, MetaInfo
from turnstile.errors import EchoMismatch, EngineError
from turnstile.generation import Draw, Finish, LogprobsMode


def event(ids, count, reason=None, prompt_tokens=3, echo=(10, 11, 12)):
    entries = [LogprobEntry(-0.5, token) for token in ids]
    meta = MetaInfo("rid", reason, prompt_tokens, count, 2, entries, count)
    return Event(ids, meta, None if echo is None else list(echo))


@pytest.fixture
def begin(prompt, vocabulary):
    """A run of a prompt of three ids, and the deltas that it emits."""

    def _begin(draw):
        deltas = []

        async def emit(delta):
            deltas.append(delta.ids_S.tolist())

        return Run(prompt([10, 11, 12]), draw, vocabulary, LogprobsMode.TEMPERATURE, "rid"), emit, deltas

    return _begin


async def test_the_server_has_the_last_word_on_how_an_answer_ended_unless_a_stop_was_seen(begin, vocabulary):
    run, emit, deltas = begin(Draw(stop=("b",)))
    a, b, c = vocabulary.spell("abc")
    await run.take(event([a], 1), emit)
    assert (run.is_over, run.ended_upstream) == (False, False)
    await run.take(event([a, b, c], 3, FinishReason("length")), emit)
    told = run.generation()
    assert (run.is_over, run.ended_upstream, deltas) == (True, True, [[a], [b]])
    assert (told.ids_S.tolist(), told.finish, told.engine_finish_reason) == ([a, b], Finish.STOP, "length")


async def test_a_stop_that_only_we_saw_ends_the_answer_and_leaves_something_to_abort(begin, vocabulary):
    run, emit, _ = begin(Draw(stop_ids=frozenset({1})))
    await run.take(event([*vocabulary.spell("a"), 1], 2), emit)
    assert (run.is_over, run.ended_upstream, run.generation().engine_finish_reason) == (True, False, "stop_id")


async def test_nothing_of_an_event_with_a_false_echo_is_told(begin):
    run, emit, deltas = begin(Draw())
    with pytest.raises(EchoMismatch, match="from index 2 on"):
        await run.take(event([5], 1, echo=(10, 11, 13)), emit)
    assert deltas == []


@pytest.mark.parametrize("first", [(10, 11, 12), None])
async def test_an_echo_that_is_another_one_later_is_found(begin, first):
    run, emit, deltas = begin(Draw())
    await run.take(event([5], 1, echo=first), emit)
    with pytest.raises(EchoMismatch, match="from index 1 on"):
        await run.take(event([5, 6], 2, echo=(10, 13, 12)), emit)
    assert deltas == [[5]]


async def test_a_count_of_the_prompt_that_changes_is_found(begin):
    run, emit, _ = begin(Draw())
    await run.take(event([5], 1), emit)
    with pytest.raises(EchoMismatch, match="it ran 4 prompt ids, and says which 3"):
        await run.take(event([5, 6], 2, prompt_tokens=4, echo=None), emit)


async def test_an_echo_that_comes_late_is_believed_from_then_on(begin):
    run, emit, _ = begin(Draw())
    await run.take(event([5], 1, echo=None), emit)
    await run.take(event([5, 6], 2, FinishReason("length")), emit)
    told = run.generation()
    assert told.prompt_echo_T is not None
    assert (told.prompt_echo_T.tolist(), told.notes) == ([10, 11, 12], ())


async def test_a_stream_that_says_nothing_of_its_prompt_is_refused(begin):
    run, emit, _ = begin(Draw())
    await run.take(event([5], 1, FinishReason("length"), prompt_tokens=None, echo=None), emit)
    with pytest.raises(EngineError, match="neither which prompt ids it ran nor how many"):
        run.generation()


async def test_an_answer_without_an_end_is_refused(begin):
    run, emit, _ = begin(Draw())
    await run.take(event([5], 1), emit)
    with pytest.raises(EngineError, match="behind 1 ids without a `finish_reason`"):
        run.generation()


@pytest.mark.parametrize("foreign", [-1, 260, 2**40])
async def test_an_id_outside_the_vocabulary_is_refused_before_anything_looks_it_up(begin, foreign):
    run, emit, deltas = begin(Draw(stop=("x",)))
    with pytest.raises(EngineError, match=f"`output_ids` has {foreign}, and the vocabulary has 260 ids"):
        await run.take(event([5, foreign], 2), emit)
    assert deltas == []


async def test_an_echo_with_a_number_that_is_no_id_is_refused(begin):
    run, emit, _ = begin(Draw())
    with pytest.raises(EngineError, match="a number that is no id"):
        await run.take(event([5], 1, echo=(10, 11, 2**40)), emit)
