"""One completion of vLLM, event by event."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import data, floats, integers, lists, none, sampled_from

from turnstile.conversation import ReplyDelta
from turnstile.engines.vllm_door import Piece, Scored
from turnstile.engines.vllm_run import Ground, Run
from turnstile.engines.vllm_shapes import CachedTokens, Counts, WeightSpan
from turnstile.errors import EchoMismatch, EngineError
from turnstile.generation import Draw, Finish, LogprobsMode
from turnstile.tokens import PolicySpan, join

END = Piece(finish="length", counts=Counts(2, 2, CachedTokens(1)))


@pytest.fixture
def run_of(vocabulary, prompt):
    """A run of [2, 3] that has taken some pieces: it, and what it emitted."""

    async def _run(*pieces, draw=None, must_echo=False, reader=None):
        deltas = []

        async def emit(delta):
            deltas.append(delta)

        ground = Ground(vocabulary, LogprobsMode.PROCESSED, must_echo, reader)
        run = Run(ground, prompt([2, 3]), draw or Draw())
        for piece in pieces:
            await run.take(piece, emit)
        return run, deltas

    return _run


def scored(*ids):
    return [Scored(each, -0.5) for each in ids]


async def test_an_event_may_bring_several_ids(run_of):
    run, deltas = await run_of(Piece(ids=[5, 6], scored=scored(5, 6), echo=[2, 3]), END)
    generation = run.generation()
    assert [delta.ids_S.tolist() for delta in deltas] == [[5, 6]]
    assert (generation.usage.completion_tokens, generation.usage.cached_tokens) == (2, 1)
    assert (generation.finish, generation.engine_finish_reason) == (Finish.LENGTH, "length")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data())
async def test_however_events_are_cut_the_answer_is_the_same(vocabulary, prompt, drawn):
    ids = drawn.draw(lists(sampled_from([1, 5, 6, *vocabulary.spell("ab")]), min_size=1, max_size=12))
    logprobs = drawn.draw(lists(none() | floats(-20, 0), min_size=len(ids), max_size=len(ids)))
    cuts = sorted({0, len(ids), *drawn.draw(lists(integers(0, len(ids)), max_size=6))})
    draw = Draw(stop=("ab",), stop_ids=frozenset({1}), top_logprobs=1)
    every = [Scored(token, value, ((token, -1.0),)) for token, value in zip(ids, logprobs, strict=True)]
    end = Piece(finish="length", counts=Counts(2, len(ids)))

    async def answered(edges):
        run, deltas = Run(Ground(vocabulary, LogprobsMode.PROCESSED, must_echo=False), prompt([2, 3]), draw), []

        async def emit(delta):
            deltas.append(delta)

        for start, stop in itertools.pairwise(edges):
            await run.take(Piece(ids=ids[start:stop], scored=every[start:stop]), emit)
        await run.take(end, emit)
        return run.generation(), deltas

    whole, _ = await answered([0, len(ids)])
    cut, deltas = await answered(cuts)
    assert cut == whole
    assert join(delta.ids_S for delta in deltas) == whole.ids_S
    assert [each.logprob for delta in deltas for each in delta.logprobs] == logprobs[: len(whole.ids_S)]
    assert sum(len(delta.numbers.logprobs_S) for delta in deltas) == len(whole.ids_S)


async def test_spans_end_where_the_answer_was_trimmed(run_of):
    spans = (WeightSpan("1", 0, 1), WeightSpan("2", 1, 2), WeightSpan("3", 2, 3))
    run, _ = await run_of(
        Piece(ids=[5, 1, 7], scored=scored(5, 1, 7)),
        Piece(finish="stop", spans=spans, counts=Counts(2, 3)),
        draw=Draw(stop_ids=frozenset({1})),
    )
    generation = run.generation()
    assert generation.ids_S.tolist() == [5, 1]
    assert generation.policy_spans == (PolicySpan("1", 0, 1), PolicySpan("2", 1, 2))
    assert generation.finish is Finish.STOP
    assert [str(note.code) for note in generation.notes] == ["trimmed_past_stop"]
    assert generation.usage.completion_tokens == 2


async def test_a_stop_string_that_only_the_engine_saw_is_believed(run_of):
    run, _ = await run_of(
        Piece(ids=[5], scored=scored(5)), Piece(finish="stop", stop_reason="END", counts=Counts(2, 1))
    )
    assert run.generation().stop_string == "END"


async def test_a_stop_token_is_no_stop_string(run_of):
    run, _ = await run_of(Piece(ids=[5], scored=scored(5), finish="stop", stop_reason=5, counts=Counts(2, 1)))
    assert run.generation().stop_string == ""


async def test_a_count_that_does_not_fit_is_kept_for_the_checks(run_of):
    run, _ = await run_of(Piece(ids=[5], scored=scored(5)), Piece(finish="length", counts=Counts(2, 31)))
    assert run.generation().usage.completion_tokens == 31


async def test_ids_are_not_believed_before_an_echo_where_the_door_may_lie(run_of):
    with pytest.raises(EchoMismatch):
        await run_of(Piece(ids=[5], scored=scored(5)), must_echo=True)
    await run_of(Piece(echo=[2, 3]), Piece(ids=[5], scored=scored(5)), must_echo=True)


@pytest.mark.parametrize("echo", [[2], [2, 4], [2, 3, 4]])
async def test_another_echo_is_a_mismatch_before_anything_is_emitted(run_of, echo):
    with pytest.raises(EchoMismatch, match=r"echo_mismatch at=\d"):
        await run_of(Piece(ids=[5], scored=scored(5), echo=echo))


@pytest.mark.parametrize("piece", [Piece(ids=[5000]), Piece(ids=[-1]), Piece(echo=[1 << 40])])
async def test_ids_outside_all_vocabularies_cannot_be_true(run_of, piece):
    with pytest.raises(EngineError) as raised:
        await run_of(piece)
    assert raised.value.code == "engine_broken"


ECHOED = b'{"choices":[{"text":"\\"prompt_token_ids\\":[9]"}],"prompt_token_ids":[2,3],"id":"x"}'


async def test_an_echo_that_is_what_was_sent_is_compared_and_not_read(run_of):
    run, _ = await run_of(must_echo=True)
    kept = run.without_echo(ECHOED, b"2,3")
    assert kept == ECHOED.replace(b"[2,3]", b"null")
    assert run.without_echo(ECHOED, b"2,3") == ECHOED
    await run.take(Piece(ids=[5], scored=scored(5), finish="length", counts=Counts(2, 1)), nobody)
    assert run.generation().prompt_echo_T.tolist() == [2, 3]


async def nobody(_delta):
    """Nobody listens."""


@pytest.mark.parametrize("event", [ECHOED.replace(b"3", b"33"), ECHOED.replace(b"[2,3]", b"[2, 3]"), b'{"choices":[]}'])
async def test_any_other_echo_is_left_to_be_read(run_of, event):
    run, _ = await run_of()
    assert run.without_echo(event, b"2,3") == event


async def test_a_reading_is_asked_for_and_emitted_with_the_ids(run_of):
    class Reader:
        def __init__(self):
            self.asked = []

        async def read(self, ids, finish):
            self.asked.append((list(ids), finish))
            return ReplyDelta(content="x") if finish else None

    reader = Reader()
    _, deltas = await run_of(Piece(ids=[5], scored=scored(5)), END, Piece(), reader=reader)
    assert reader.asked == [([5], ""), ([], "length")]
    assert [(delta.ids_S.tolist(), delta.said) for delta in deltas] == [([5], None), ([], ReplyDelta(content="x"))]


async def test_a_stream_without_an_end_or_without_counts_is_no_answer(run_of):
    run, _ = await run_of(Piece(ids=[5], scored=scored(5)))
    with pytest.raises(EngineError, match="before the answer was whole"):
        run.generation()
    run, _ = await run_of(Piece(finish="length"))
    with pytest.raises(EngineError, match="no `usage` came"):
        run.generation()
