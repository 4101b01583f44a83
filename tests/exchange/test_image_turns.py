"""Rollouts with images from the request to the record: which bytes go beside which placeholder, and what is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from turnstile.conversation import Answer, Call, Ending, Message, Role, Text
from turnstile.errors import CallerError, TurnstileError
from turnstile.exchange.draws import Overflow
from turnstile.exchange.rollouts import Opening, Rollouts
from turnstile.exchange.world import World
from turnstile.generation import BridgeKind, Finish, Forked, Prompt, Root, Spliced
from turnstile.history.pictures import pictures
from turnstile.journal import CallFailed, ImageRun, ShownImage
from turnstile.reasons import FailReason, ForkReason, ImageFault, IncompleteReason, NoteCode
from turnstile.store import Blobs
from turnstile.tokens import SegmentKind
from turnstile.trajectory.spelling import collapsed

pytestmark = pytest.mark.families


@pytest.fixture
async def agent(seeing: Any, sighted: World, rollouts: Rollouts) -> Any:
    return seeing.Agent(sighted, await rollouts.create(Opening("r"), ""))


async def test_an_image_is_durable_before_the_engine_hears_and_recorded_with_its_size_and_run(
    agent: Any, seeing: Any, tmp_path: Path
) -> None:
    shot = seeing.picture(112, 84)
    kept: list[bytes] = []
    blobs = Blobs(tmp_path)

    def twist(prompt: Prompt, generation: Any) -> Any:
        kept.append(blobs.get(prompt.media[0].sha256))
        return generation

    agent.engine.twist = twist
    await agent.say("What is this?", shot).ask("A door.")
    assert kept == [shot.data]
    assert agent.prompt.media == (shot,)
    places = [at for at, token_id in enumerate(agent.started.added_A) if token_id == agent.prompt.placeholder_id]
    assert agent.started.images == (ShownImage(places[0], shot.sha256, "image/png", len(shot.data), 112, 84),)
    assert agent.started.placeholder_id == agent.prompt.placeholder_id == 151655
    (node,) = agent.rollout.forest.nodes
    assert node.choice.image_runs == (ImageRun(12, 12),)
    assert node.choice.usage.prompt_tokens == len(agent.started.added_A) + 11


async def test_a_spliced_turn_brings_the_held_images_first_and_records_its_own(agent: Any, seeing: Any) -> None:
    one, two = seeing.picture(112, 84), seeing.picture(56, 56)
    await agent.say(one, "What is this?").ask("A door.")
    first = agent.prompt
    flight = await agent.say("And", two, "and", one, "?").ask("Two windows.")
    assert flight.history == Spliced(BridgeKind.SENTINEL)
    assert agent.prompt.media == (one, two, one)
    assert agent.prompt.ids_T.startswith(first.ids_T)
    assert [image.sha256 for image in agent.started.images] == [two.sha256, one.sha256]
    assert [each.run for each in pictures(agent.rollout.forest.nodes[-1])] == [
        ImageRun(12, 12), ImageRun(4, 4), ImageRun(12, 12),
    ]  # fmt: skip


async def test_an_image_in_a_tools_result_goes_beside_its_placeholder(agent: Any, seeing: Any) -> None:
    shot = seeing.picture(56, 84)
    await agent.say("look").ask("Looking.")
    flight = await agent.say("Screen:", shot, role=Role.TOOL, call_id="x").ask("A door.")
    assert flight.history == Spliced(BridgeKind.SENTINEL)
    assert agent.prompt.media == (shot,)
    assert "Screen:<|vision_start|><|image_pad|><|vision_end|>" in agent.text()


async def test_an_image_resized_by_the_client_is_another_image_and_forks(agent: Any, seeing: Any) -> None:
    await agent.say("look", seeing.picture(112, 112)).ask("A door.")
    agent.messages[0] = Message(Role.USER, (Text("look"), seeing.picture(56, 56).image))
    agent.media.append(seeing.picture(56, 56))
    flight = await agent.say("sure?").ask("Yes.")
    assert isinstance(flight.history, Root | Forked)
    assert agent.prompt.media == (seeing.picture(56, 56),)
    assert agent.prompt.parent is None


async def test_the_bytes_of_an_image_that_is_only_named_come_from_the_store(
    agent: Any, seeing: Any, tmp_path: Path
) -> None:
    shot = seeing.picture(112, 84)
    await agent.say("look", shot).ask("A door.")
    agent.media.clear()
    await agent.say("sure?").ask("Yes.")
    assert agent.prompt.media == (shot,)
    (tmp_path / "blobs" / shot.sha256[:2] / shot.sha256).unlink()
    gone = await agent.say("really?").ask("Yes.")
    assert isinstance(gone.outcome, TurnstileError)
    assert (gone.outcome.code, agent.rollout.forest.node_count) == ("blob_missing", 2)
    agent.engine.answers.clear()


async def test_case_i2_equal_bytes_are_stored_once_and_equal_beginnings_are_not_equal_images(
    agent: Any, seeing: Any, tmp_path: Path
) -> None:
    one = seeing.picture(112, 84)
    data = one.data + b"\0" * 1500
    other = msgspec.structs.replace(one, sha256=seeing.hashlib.sha256(data + b"x").hexdigest(), data=data + b"x")
    twin = msgspec.structs.replace(one, sha256=seeing.hashlib.sha256(data + b"y").hexdigest(), data=data + b"y")
    await agent.say(other, "and", twin, "and", other).ask("Doors.")
    assert agent.prompt.media == (other, twin, other)
    assert sorted(file.name for file in (tmp_path / "blobs").rglob("*") if file.is_file()) == sorted(
        (other.sha256, twin.sha256)
    )


async def test_case_i3_a_sliding_window_puts_earlier_answers_back_with_their_own_ids(
    agent: Any, seeing: Any, tmp_path: Path
) -> None:
    shots = [seeing.picture(56 + 28 * turn, 84, turn) for turn in range(6)]
    histories = []
    for turn, shot in enumerate(shots):
        agent.say(f"step {turn}", shot)
        if turn >= 2:
            # The model's odd spelling of its answer would not survive a second encoding.
            agent.messages[2 * (turn - 2)] = Message(Role.USER, (Text(f"step {turn - 2}"), Text("[image omitted]")))
        flight = await agent.ask(f" Plutor {turn}")
        histories.append(flight.history)
        assert [each.sha256 for each in agent.prompt.media] == [
            each.sha256 for each in shots[max(0, turn - 1) : turn + 1]
        ]
        replayed = [each for each in agent.prompt.added_segments if each.kind is SegmentKind.REPLAYED]
        assert len(replayed) == (turn if turn >= 2 else 0)
    assert [type(each) for each in histories] == [Root, Spliced, Forked, Forked, Forked, Forked]
    assert {each.reason for each in histories[2:]} == {ForkReason.MEDIA_CHANGED}
    rollout = agent.exported(tmp_path)
    assert [each.token_ids.tolist() for each in rollout.sequences] == agent.ran()[1:]
    assert [[entry.sha256 for entry in each.media] for each in rollout.sequences] == [
        [shot.sha256 for shot in shots[at : at + 2]] for at in range(5)
    ]
    assert (rollout.token_counts.sampled, rollout.token_counts.masked) == (rollout.token_counts.trainable, {})
    assert len([file for file in (tmp_path / "out.jsonl.media").rglob("*") if file.is_file()]) == 6


async def test_a_growing_window_is_one_path(agent: Any, seeing: Any, tmp_path: Path) -> None:
    shots = [seeing.picture(56, 56 + 28 * turn, turn) for turn in range(5)]
    for turn, shot in enumerate(shots):
        flight = await agent.say(f"step {turn}", shot).ask(f"Done {turn}")
        assert isinstance(flight.history, Root if turn == 0 else Spliced)
    assert agent.prompt.media == tuple(shots)
    assert [each.run.length for each in pictures(agent.rollout.forest.nodes[-1]) if each.run] == [4, 6, 8, 10, 12]
    (sequence,) = agent.exported(tmp_path).sequences
    assert sequence.token_ids.tolist() == agent.ran()[-1]
    assert [(each.sha256, each.length, each.width, each.height) for each in sequence.media] == [
        (shot.sha256, 4 + 2 * turn, 56, 56 + 28 * turn) for turn, shot in enumerate(shots)
    ]


async def test_the_text_of_a_placeholder_is_refused_beside_images(agent: Any, seeing: Any) -> None:
    flight = await agent.say("say <|image_pad|>", seeing.picture(56, 56)).ask("No.")
    assert isinstance(flight.outcome, CallerError)
    assert flight.outcome.param == "messages[0]"
    agent.engine.answers.clear()


async def test_case_a5_a_sampled_placeholder_is_no_image_and_never_takes_one_in(
    agent: Any, seeing: Any, tmp_path: Path
) -> None:
    one, two = seeing.picture(112, 84), seeing.picture(56, 56)
    await agent.say("look", one).ask("Hello<|image_pad|>")
    (first,) = agent.rollout.forest.nodes
    assert (first.choice.placeholders_S, first.choice.image_runs) == ((1,), (ImageRun(12, 12),))
    assert NoteCode.SAMPLED_PLACEHOLDER in {note.code for note in first.choice.notes}
    flight = await agent.say("and", two).ask("Yes.")
    assert flight.history is not None
    assert agent.prompt.media == (one, two)
    assert agent.prompt.ids_T.tolist().count(151655) == 2
    assert [image.sha256 for image in agent.started.images] == [one.sha256, two.sha256]
    rollout = agent.exported(tmp_path)
    assert [[entry.sha256 for entry in each.media] for each in rollout.sequences] == [
        [one.sha256], [one.sha256, two.sha256],
    ]  # fmt: skip
    assert rollout.token_counts.masked == {"sampled_placeholder": 1}


async def test_an_answer_with_a_sampled_placeholder_cannot_be_continued_beside_images(agent: Any, seeing: Any) -> None:
    shot = seeing.picture(56, 56)
    await agent.say("look", shot).ask("Hello<|image_pad|> and")
    call = Call("openai.chat", "m", tuple(agent.messages), media=(shot,), ending=Ending.CONTINUE)
    flight = await agent.fly(call)
    assert isinstance(flight.outcome, CallerError)
    assert (flight.outcome.code, len(agent.engine.prompts)) == ("images_not_supported", 1)


async def test_an_engine_that_says_nothing_of_its_images_is_spliced_on_and_marked(
    agent: Any, seeing: Any, tmp_path: Path
) -> None:
    agent.engine.twist = seeing.without_expansion
    await agent.say("look", seeing.picture(112, 84)).ask("A door.")
    flight = await agent.say("sure?").ask("Yes.")
    assert flight.history == Spliced(BridgeKind.SENTINEL)
    assert [node.choice.incomplete for node in agent.rollout.forest.nodes] == [
        (IncompleteReason.EXPANSION_UNKNOWN,)
    ] * 2
    rollout = agent.exported(tmp_path)
    assert [each.incomplete_reasons for each in rollout.sequences] == [("expansion_unknown",)]
    assert rollout.token_counts.trainable == 0


async def test_what_an_engine_did_not_say_at_first_it_may_say_later(agent: Any, seeing: Any) -> None:
    agent.engine.twist = seeing.without_expansion
    await agent.say("look", seeing.picture(112, 84)).ask("A door.")
    agent.engine.twist = seeing.honest
    await agent.say("and", seeing.picture(56, 56)).ask("Yes.")
    assert agent.rollout.forest.nodes[-1].choice.image_runs == (ImageRun(12, 12), ImageRun(4, 4))


async def test_an_image_that_is_run_otherwise_than_before_is_an_error_and_no_turn(agent: Any, seeing: Any) -> None:
    await agent.say("look", seeing.picture(112, 84)).ask("A door.")

    def larger(prompt: Prompt, generation: Any) -> Any:
        media = tuple(seeing.picture(224, 84) for _ in prompt.media)
        run = seeing.as_run(msgspec.structs.replace(prompt, media=media))
        usage = msgspec.structs.replace(generation.usage, prompt_tokens=len(run))
        return msgspec.structs.replace(generation, expanded=run, usage=usage)

    agent.engine.twist = larger
    flight = await agent.say("sure?").ask("Yes.")
    assert isinstance(flight.outcome, TurnstileError)
    assert (flight.outcome.code, flight.outcome.status) == ("echo_mismatch", 502)
    assert ImageFault.IMAGE_CHANGED in flight.outcome.problem
    failed = list(agent.rollout.forest.calls.values())[-1].failed
    assert isinstance(failed, CallFailed)
    assert (failed.reason, agent.rollout.forest.node_count) == (FailReason.ECHO_MISMATCH, 1)


async def test_the_window_is_measured_with_images_as_large_as_they_were(agent: Any, seeing: Any) -> None:
    shot = seeing.picture(280, 280)
    await agent.say("look", shot).ask("A door.")
    collapsed = len(agent.prompt)
    capabilities = msgspec.structs.replace(seeing.CAPABILITIES, context_length=collapsed + 300)
    agent.engine.capabilities = capabilities
    agent.world = msgspec.structs.replace(agent.world, overflow=Overflow.CLAMP)
    await agent.say("again", shot).ask("A door.", max_tokens=1000)
    prompt = len(agent.prompt) + 2 * 99
    assert agent.started.draw.max_tokens == collapsed + 300 - prompt


async def test_all_choices_of_a_call_are_shown_the_same_images(agent: Any, seeing: Any) -> None:
    await agent.say("look", seeing.picture(112, 84)).ask("A door.", choices=2)
    assert [node.choice.image_runs for node in agent.rollout.forest.nodes] == [(ImageRun(12, 12),)] * 2


async def test_case_i1_an_image_whose_turn_came_to_nothing_is_in_no_sequence(
    agent: Any, seeing: Any, tmp_path: Path
) -> None:
    kept = seeing.picture(112, 84)
    await agent.say("look", kept).ask("A door.")

    def too_long(prompt: Prompt, generation: Any) -> Any:
        raise CallerError("too long", "send less", code="context_length_exceeded")

    agent.engine.twist = too_long
    refused = await agent.say("and", seeing.picture(560, 560)).ask("Yes.")
    assert isinstance(refused.outcome, CallerError)
    agent.engine.twist = seeing.honest
    agent.messages.pop()
    await agent.say("then?").ask("No.")
    rollout = agent.exported(tmp_path)
    (sequence,) = rollout.sequences
    assert [(entry.sha256, entry.num_tokens) for entry in sequence.media] == [(kept.sha256, 12)]
    assert sequence.token_ids.tolist().count(151655) == 12
    assert [call.kind for call in rollout.calls] == ["agent", "discarded", "agent"]


async def test_case_i4_what_a_processor_has_to_agree_with_is_in_the_export(
    agent: Any, seeing: Any, tmp_path: Path
) -> None:
    shot = seeing.picture(980, 700)
    await agent.say("look", shot).ask("A door.")
    (sequence,) = agent.exported(tmp_path).sequences
    (entry,) = sequence.media
    assert (entry.width, entry.height, entry.num_tokens, entry.length) == (980, 700, 875, 875)
    assert (tmp_path / "out.jsonl.media" / shot.sha256[:2] / shot.sha256).read_bytes() == shot.data
    assert collapsed(sequence).ids_T == agent.rollout.forest.nodes[-1].held_T


async def test_an_answer_that_was_cut_off_is_continued_beside_its_images(
    agent: Any, seeing: Any, tmp_path: Path
) -> None:
    shot = seeing.picture(112, 84)
    agent.say("look", shot)
    agent.engine.answers += [agent.world.served.tokenizer.encode(text).tolist() for text in ("A", " door.<|im_end|>")]
    call = Call("openai.chat", "m", tuple(agent.messages), media=(shot,))
    first = await agent.fly(call)
    assert isinstance(first.outcome, Answer)
    history = (*agent.messages, first.outcome.replies[0].message)
    second = await agent.fly(msgspec.structs.replace(call, messages=history, ending=Ending.CONTINUE))
    assert second.history == Spliced(BridgeKind.CONTINUATION)
    assert agent.prompt.media == (shot,)
    (sequence,) = agent.exported(tmp_path).sequences
    assert sequence.token_ids.tolist() == agent.ran()[-1]


async def test_case_l3_an_answer_that_the_engine_gave_up_goes_on_beside_its_images(
    agent: Any, seeing: Any, tmp_path: Path
) -> None:
    shot = seeing.picture(112, 84)
    agent.world = msgspec.structs.replace(agent.world, continuations=1)
    agent.engine.answers.append(agent.world.served.tokenizer.encode("A").tolist())

    def given_up(prompt: Prompt, generation: Any) -> Any:
        agent.engine.twist = seeing.honest
        return msgspec.structs.replace(generation, finish=Finish.ABORT, engine_finish_reason="abort")

    agent.engine.twist = given_up
    await agent.say("look", shot).ask(" door.")
    assert [prompt.media for prompt in agent.engine.prompts] == [(shot,), (shot,)]
    rollout = agent.exported(tmp_path)
    (sequence,) = rollout.sequences
    assert sequence.token_ids.tolist() == [
        *agent.engine.runs[-1].ids_T.tolist(),
        *agent.world.served.tokenizer.encode(" door.<|im_end|>").tolist(),
    ]
    assert (rollout.token_counts.trainable, rollout.calls[0].usage.prompt_tokens) == (
        rollout.token_counts.sampled, len(agent.engine.runs[0]),
    )  # fmt: skip


async def test_an_answer_that_goes_on_without_its_images_is_an_error(agent: Any, seeing: Any) -> None:
    agent.world = msgspec.structs.replace(agent.world, continuations=1)
    agent.engine.answers.append(agent.world.served.tokenizer.encode("A").tolist())

    def blind(prompt: Prompt, generation: Any) -> Any:
        usage = msgspec.structs.replace(generation.usage, prompt_tokens=len(prompt))
        return msgspec.structs.replace(generation, usage=usage, expanded=None, prompt_echo_T=prompt.ids_T)

    def given_up(prompt: Prompt, generation: Any) -> Any:
        agent.engine.twist = blind
        return msgspec.structs.replace(generation, finish=Finish.ABORT, engine_finish_reason="abort")

    agent.engine.twist = given_up
    flight = await agent.say("look", seeing.picture(112, 84)).ask(" door.")
    assert isinstance(flight.outcome, TurnstileError)
    assert ImageFault.IMAGE_NOT_RUN in flight.outcome.problem
