"""One completion of a token server, event by event."""

from __future__ import annotations

import msgspec
import pytest

from turnstile.conversation import Media
from turnstile.engines.token_server_run import Run, unstreamed
from turnstile.engines.token_server_shapes import Event, WeightSpan
from turnstile.errors import EchoMismatch, EngineError
from turnstile.expansion import ExpandedIds, ImageRange
from turnstile.generation import Draw, Finish, LogprobsMode
from turnstile.tokens import IdRun, PolicySpan

HASH = IdRun.of([4, 5]).sha256()
HEAD = Event(prompt_tokens=2, prompt_sha256=HASH, logprobs_mode="temperature", logprobs_temperature=0.5)
PAD = 9


async def ran(prompt, vocabulary, *events, draw=None):
    """What came of events, and the ids of each delta."""
    run = Run(prompt, draw or Draw(stop_ids=frozenset({1})), vocabulary)
    told = []

    async def emit(delta):
        told.append(delta.ids_S.tolist())

    for event in events:
        await run.take(event, emit)
    return run.generation(), told


def piece(*ids, version="0", finish="", **more):
    return Event(output_ids=list(ids), logprobs=[-0.5] * len(ids), weight_version=version, finish_reason=finish, **more)


async def test_events_add_up_to_a_generation(prompt, vocabulary):
    found, told = await ran(prompt([4, 5]), vocabulary, HEAD, piece(7), piece(8, 1, finish="stop", completion_tokens=3))
    assert told == [[7], [8, 1]]
    assert (found.ids_S.tolist(), found.logprobs_S.tolist()) == ([7, 8, 1], [-0.5, -0.5, -0.5])
    assert (found.finish, found.usage.prompt_tokens, found.usage.completion_tokens) == (Finish.STOP, 2, 3)
    assert (found.logprobs_mode, found.logprobs_temperature) == (LogprobsMode.TEMPERATURE, 0.5)
    assert found.prompt_echo_T == IdRun.of([4, 5])
    assert found.policy_spans == (PolicySpan("0", 0, 3),)
    assert found.notes == ()


async def test_the_version_of_each_token_is_kept(prompt, vocabulary):
    found, _ = await ran(
        prompt([4, 5]), vocabulary, HEAD, piece(7), piece(8, version=1), piece(9, 1, version="1", finish="stop")
    )
    assert found.policy_spans == (PolicySpan("0", 0, 1), PolicySpan("1", 1, 4))


async def test_spans_of_an_answer_that_came_whole_end_where_it_ends(prompt, vocabulary):
    whole = msgspec.structs.replace(
        HEAD,
        output_ids=[7, 8, 1, 9],
        logprobs=[-0.5] * 4,
        weight_versions=(WeightSpan("a", 0, 2), WeightSpan("b", 2, 4)),
        finish_reason="length",
        completion_tokens=4,
    )
    found, _ = await ran(prompt([4, 5]), vocabulary, unstreamed(whole))
    assert found.ids_S.tolist() == [7, 8, 1]
    assert found.policy_spans == (PolicySpan("a", 0, 2), PolicySpan("b", 2, 3))
    assert [str(note.code) for note in found.notes] == ["trimmed_past_stop"]
    assert found.usage.completion_tokens == 3


def test_what_has_no_end_is_no_whole_answer():
    with pytest.raises(EngineError, match="no `finish_reason`"):
        unstreamed(piece(7))


@pytest.mark.parametrize(
    ("head", "said"),
    [
        (Event(prompt_tokens=2, prompt_sha256="0" * 64), "with the hash 000000000000"),
        (Event(prompt_tokens=3, prompt_sha256=HASH), "ran 3 prompt ids, and 2 were sent"),
        (Event(prompt_tokens=3), "ran 3 prompt ids, and 2 were sent"),
        (Event(prompt_ids=[4, 6]), "from index 1 on"),
    ],
)
async def test_another_prompt_is_found_before_an_id_is_believed(prompt, vocabulary, head, said):
    with pytest.raises(EchoMismatch, match=said):
        await ran(prompt([4, 5]), vocabulary, head)


async def test_a_prompt_of_which_nothing_is_said_is_no_answer(prompt, vocabulary):
    with pytest.raises(EngineError, match="neither which prompt ids it ran nor how many"):
        await ran(prompt([4, 5]), vocabulary, piece(7))


async def test_a_prompt_that_was_only_counted_is_noted(prompt, vocabulary):
    found, _ = await ran(prompt([4, 5]), vocabulary, piece(1, finish="stop", prompt_tokens=2))
    assert found.prompt_echo_T is None
    assert [str(note.code) for note in found.notes] == ["echo_unverified"]


@pytest.fixture
def shown(prompt):
    """A prompt with one picture."""
    image = Media("s", "image/png", b"x")
    return msgspec.structs.replace(prompt([4, PAD, 5]), media=(image,), placeholder_id=PAD)


async def test_a_picture_stands_where_its_range_says(shown, vocabulary):
    head = Event(prompt_tokens=5, prompt_ids=[4, PAD, PAD, PAD, 5], image_ranges=[(1, 3)])
    found, _ = await ran(shown, vocabulary, head, piece(1, finish="stop"))
    assert found.expanded == ExpandedIds(IdRun.of([4, PAD, PAD, PAD, 5]), (ImageRange(1, 3, 3),))
    assert (found.prompt_echo_T, found.usage.prompt_tokens) == (shown.ids_T, 5)


@pytest.mark.parametrize(
    ("head", "error", "said"),
    [
        (Event(prompt_tokens=5), EngineError, "`prompt_ids` is missing"),
        (Event(prompt_ids=[4, PAD, 5], image_ranges=[]), EchoMismatch, "0 images stand there"),
        (Event(prompt_ids=[4, PAD, 5], image_ranges=[(1, 9)]), EngineError, "`image_ranges`"),
        (Event(prompt_ids=[4, PAD, 6], image_ranges=[(1, 1)]), EchoMismatch, "at=2"),
        (Event(prompt_tokens=4, prompt_ids=[4, PAD, 5], image_ranges=[(1, 1)]), EchoMismatch, "ran 4 prompt ids"),
        (Event(prompt_ids=[2**40]), EngineError, "no id"),
    ],
)
async def test_pictures_that_were_put_elsewhere_are_found(shown, vocabulary, head, error, said):
    with pytest.raises(error, match=said):
        await ran(shown, vocabulary, head)


async def test_a_stop_string_ends_an_answer_that_the_engine_goes_on_with(prompt, vocabulary):
    ids = vocabulary.spell("abc")
    draw = Draw(stop=("b",), stop_ids=frozenset({1}))
    found, told = await ran(prompt([4, 5]), vocabulary, HEAD, piece(*ids), draw=draw)
    assert told == [ids[:2]]
    assert (found.stop_string, found.finish, found.usage.completion_tokens) == ("b", Finish.STOP, 2)


async def test_a_stop_id_without_the_engines_word_is_no_end(prompt, vocabulary):
    with pytest.raises(EngineError, match="before the answer was whole"):
        await ran(prompt([4, 5]), vocabulary, HEAD, piece(7, 1))


async def test_an_engine_that_samples_on_behind_a_stop_is_cut(prompt, vocabulary):
    found, told = await ran(prompt([4, 5]), vocabulary, HEAD, piece(7, 1), piece(8))
    assert (found.ids_S.tolist(), told, found.finish) == ([7, 1], [[7, 1]], Finish.STOP)


@pytest.mark.parametrize(
    ("told", "temperature", "mode", "inside"),
    [
        ("raw", None, LogprobsMode.RAW, 1.0),
        ("processed", None, LogprobsMode.PROCESSED, 0.7),
        ("temperature", 0.3, LogprobsMode.TEMPERATURE, 0.3),
        ("unknown", 0.3, LogprobsMode.UNKNOWN, None),
        ("", None, LogprobsMode.UNKNOWN, None),
        ("what", None, LogprobsMode.UNKNOWN, None),
    ],
)
async def test_numbers_mean_what_the_engine_says_of_them(prompt, vocabulary, told, temperature, mode, inside):
    head = Event(prompt_tokens=2, prompt_sha256=HASH, logprobs_mode=told, logprobs_temperature=temperature)
    draw = Draw(temperature=0.7, stop_ids=frozenset({1}))
    found, _ = await ran(prompt([4, 5]), vocabulary, head, piece(1, finish="stop"), draw=draw)
    assert (found.logprobs_mode, found.logprobs_temperature) == (mode, inside)


async def test_an_end_that_nobody_knows_is_an_error(prompt, vocabulary):
    found, _ = await ran(prompt([4, 5]), vocabulary, HEAD, piece(7, finish="preempted"))
    assert (found.finish, found.engine_finish_reason) == (Finish.ERROR, "preempted")
