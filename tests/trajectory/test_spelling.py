"""Sequences with images are what the engine ran, and everything else in them stands where it stands in that."""

from __future__ import annotations

import hashlib
import struct

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from turnstile.conversation import Message, Role, Text, Usage
from turnstile.errors import CallerError
from turnstile.expansion import ExpandedIds, ImageRange
from turnstile.generation import FinishedItem, Forked, LogprobsMode, NodeRef
from turnstile.history.forest import Forest
from turnstile.journal import AnswerResumed, CallFailed, ImageRun, PartialChoice, ShownImage
from turnstile.reasons import FailReason, ForkReason, IncompleteReason
from turnstile.tokens import IdRun, LogprobRun
from turnstile.trajectory.assemble import assemble
from turnstile.trajectory.shapes import MediaEntry
from turnstile.trajectory.spelling import Spelled, Spelling, collapsed
from turnstile.trajectory.validate import validate

PAD, BREAK = 60, 61
ONE, TWO = "11" * 32, "22" * 32


def shown(at: int, sha256: str = ONE) -> ShownImage:
    return ShownImage(at, sha256, "image/png", 100, 56, 84)


def image(sha256: str, offset: int, length: int, num_tokens: int) -> MediaEntry:
    return MediaEntry(
        sha256=sha256, mime="image/png", kind="image", offset=offset, length=length, num_tokens=num_tokens,
        placeholder_id=PAD, width=56, height=84,
    )  # fmt: skip


def errors(rollout):
    return [str(each) for each in validate(rollout) if each.code.startswith("E")]


THREE = (ImageRun(3, 3),)


def look(journal, runs=THREE, incomplete=()):
    """A call with an image in its prompt [1, PAD, 5, 6, 7]."""
    journal.start("c0", [1, PAD, 5, 6, 7], images=(shown(1),), placeholder_id=PAD)
    length = 4 + sum(run.length for run in runs) if runs else 5
    usage = Usage(length, 2)
    choice = journal.choice("c0", [30, 2], image_runs=runs, usage=usage, incomplete=incomplete)
    return journal.commit("c0", choice)[0]


def test_each_index_moves_behind_the_runs_before_it():
    spelled = Spelled(
        ExpandedIds(IdRun.of([1, PAD, PAD, PAD, 5, PAD, PAD, 6]), (ImageRange(1, 3, 3), ImageRange(5, 2, 2))),
        places=(1, 3),
    )
    assert [spelled.index(at) for at in range(6)] == [0, 1, 4, 5, 7, 8]


def test_a_sequence_has_the_runs_of_its_images_and_says_where_they_are(journal):
    first = look(journal)
    journal.start("c1", [4, PAD, 8, 9, 10], first, images=(shown(1, TWO),), placeholder_id=PAD)
    run = ImageRun(3, 2, IdRun.of([PAD, BREAK, PAD]))
    journal.commit("c1", journal.choice("c1", [31, 2], image_runs=(run,), usage=Usage(16, 2)))
    rollout = assemble(journal.forest())
    (sequence,) = rollout.sequences
    assert sequence.token_ids.tolist() == [
        1, PAD, PAD, PAD, 5, 6, 7, 30, 2, 4, PAD, BREAK, PAD, 8, 9, 10, 31, 2,
    ]  # fmt: skip
    assert sequence.media == (image(ONE, 1, 3, 3), image(TWO, 10, 3, 2))
    assert [(each.start, each.end, each.kind) for each in sequence.segments] == [
        (0, 5, "prompt"), (5, 7, "scaffold"), (7, 9, "sampled"), (9, 14, "observation"), (14, 16, "scaffold"),
        (16, 18, "sampled"),
    ]  # fmt: skip
    assert sequence.prompt_length == 7
    assert [each.usage.prompt_tokens for each in rollout.calls] == [7, 16]
    prompts = [sequence.token_ids.tolist()[:7], sequence.token_ids.tolist()[:16]]
    assert [each.prompt_sha256 for each in rollout.calls] == [
        hashlib.sha256(struct.pack(f"<{len(ids)}i", *ids)).hexdigest() for ids in prompts
    ]
    assert errors(rollout) == []


def test_what_the_engine_did_not_say_stays_one_placeholder_and_is_incomplete_by_name(journal):
    look(journal, (), (IncompleteReason.EXPANSION_UNKNOWN,))
    rollout = assemble(journal.forest())
    (sequence,) = rollout.sequences
    assert (sequence.complete, sequence.incomplete_reasons) == (False, ("expansion_unknown",))
    assert sequence.token_ids.tolist() == [1, PAD, 5, 6, 7, 30, 2]
    assert sequence.media == (image(ONE, 1, 1, 0),)
    assert (rollout.token_counts.masked, rollout.token_counts.trainable) == ({"incomplete_call": 2}, 0)
    assert errors(rollout) == []


def test_a_silent_turn_does_not_cost_the_turn_before_it(journal):
    first = look(journal)
    journal.start("c1", [4, PAD, 8, 9, 10], first, images=(shown(1, TWO),), placeholder_id=PAD)
    silent = (IncompleteReason.EXPANSION_UNKNOWN,)
    journal.commit("c1", journal.choice("c1", [31, 2], usage=Usage(14, 2), incomplete=silent))
    rollout = assemble(journal.forest())
    assert [(each.complete, len(each.token_ids)) for each in rollout.sequences] == [(True, 9), (False, 16)]
    assert (rollout.token_counts.trainable, rollout.token_counts.masked) == (2, {"incomplete_call": 2})
    assert errors(rollout) == []


def test_a_run_that_is_told_late_is_put_in_everywhere(journal):
    first = look(journal, (), (IncompleteReason.EXPANSION_UNKNOWN,))
    journal.start("c1", [4, PAD, 8, 9, 10], first, images=(shown(1, TWO),), placeholder_id=PAD)
    runs = (ImageRun(3, 3), ImageRun(2, 2))
    journal.commit("c1", journal.choice("c1", [31, 2], image_runs=runs, usage=Usage(15, 2)))
    forest = journal.forest()
    spelling = Spelling(forest)
    assert spelling.is_known(forest.calls["c0"].started)
    assert spelling.prompt(forest.calls["c0"].started).ids_T.tolist() == [1, PAD, PAD, PAD, 5, 6, 7]
    assert errors(assemble(forest)) == []


def test_a_fork_is_where_the_run_of_another_image_ends(journal):
    look(journal)
    fork = Forked(ForkReason.MEDIA_CHANGED, 0)
    journal.start("c1", [1, PAD, 5, 6, 7], history=fork, images=(shown(1, TWO),), placeholder_id=PAD)
    journal.commit("c1", journal.choice("c1", [31, 2], image_runs=(ImageRun(5, 5),), usage=Usage(9, 2)))
    rollout = assemble(journal.forest())
    assert [each.fork_at for each in rollout.calls] == [None, 4]
    assert [len(each.token_ids) for each in rollout.sequences] == [9, 11]
    assert errors(rollout) == []


def test_without_images_nothing_is_spelled_out(journal):
    journal.turn("c0", [1, PAD, 5], [30, PAD, 2])
    forest = journal.forest()
    assert Spelling(forest).path(forest.nodes[0]) == Spelled(ExpandedIds(IdRun.of([1, PAD, 5, 30, PAD, 2]), ()))


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_every_rollout_with_images_keeps_the_rules_of_the_format(new_journal, data):
    journal = new_journal()
    ran: dict[NodeRef, list[int]] = {}
    """What an engine really ran and sampled, made without a thought of placeholders."""
    spans: dict[NodeRef, list[list[int]]] = {}
    """The same with each id that was sent as the ids that were run for it."""
    refs: list[NodeRef] = []
    for number in range(data.draw(st.integers(1, 6))):
        parent = data.draw(st.sampled_from([None, *refs]))
        # Of a path only the stop token may be cut off, behind which another one is put.
        cut = 0 if parent is None else data.draw(st.sampled_from([0, 0, 1]))
        sizes = data.draw(st.lists(st.integers(2, 5), max_size=3))
        added, images, runs = [1 if parent is None else 4], [], []
        spelled: list[list[int]] = [added[:]]
        for at, size in enumerate(sizes):
            run = [PAD] * size if data.draw(st.booleans()) else [PAD, *[BREAK, PAD][: size - 1]]
            images.append(shown(len(added), f"{at}{number}" * 32))
            runs.append(ImageRun(len(run), run.count(PAD), IdRun() if BREAK not in run else IdRun.of(run)))
            added += [PAD, 5]
            spelled += [run, [5]]
        added += [6, 7]
        spelled += [[6], [7]]
        name = f"c{number}"
        history = Forked(ForkReason.STOP_MISMATCH) if cut or (parent is None and number) else None
        journal.start(
            name, added, parent, cut, history, images=tuple(images), placeholder_id=PAD if images or ran else None
        )
        held = [] if parent is None else spans[parent][: len(spans[parent]) - cut]
        prompt = [*held, *spelled]
        length = sum(map(len, prompt))
        answer = [*data.draw(st.lists(st.integers(30, 50), min_size=1, max_size=3)), 2]
        choice = journal.choice(name, answer, image_runs=tuple(runs), usage=Usage(length, len(answer)))
        (ref,) = journal.commit(name, choice)
        spans[ref] = [*prompt, *([each] for each in answer)]
        ran[ref] = [each for run in spans[ref] for each in run]
        refs.append(ref)
    forest: Forest = journal.forest()
    rollout = assemble(forest)
    assert errors(rollout) == []
    by_call = {str(ref): ids for ref, ids in ran.items()}
    for sequence in rollout.sequences:
        assert sequence.token_ids.tolist() == by_call[rollout.calls[sequence.leaf_call].call_id]
        for entry in sequence.media:
            run = sequence.token_ids.slice(entry.offset, entry.offset + entry.length).tolist()
            assert (run.count(PAD), run[0]) == (entry.num_tokens, PAD)


def test_a_sequence_is_collapsed_to_what_was_held_with_every_border_in_its_place(journal):
    first = look(journal)
    journal.start("c1", [4, PAD, 8, 9, 10], first, images=(shown(1, TWO),), placeholder_id=PAD)
    run = ImageRun(3, 2, IdRun.of([PAD, BREAK, PAD]))
    (last,) = journal.commit("c1", journal.choice("c1", [31, 2], image_runs=(run,), usage=Usage(16, 2)))
    forest = journal.forest()
    (sequence,) = assemble(forest).sequences
    bare = collapsed(sequence)
    assert bare.ids_T == forest.node(last).held_T
    assert [bare.index(each.end) for each in sequence.segments] == [3, 5, 7, 10, 12, 14]


def test_media_that_overlap_are_refused_by_name(journal):
    look(journal)
    (sequence,) = assemble(journal.forest()).sequences
    with pytest.raises(CallerError, match="media of sequence ro/0 are not in order"):
        collapsed(msgspec.structs.replace(sequence, media=(image(ONE, 1, 3, 3), image(ONE, 2, 3, 3))))


def test_a_beginning_that_a_client_went_on_from_is_known_by_what_came_after_it(journal):
    journal.start("c0", [1, PAD, 5, 6, 7], images=(shown(1),), placeholder_id=PAD)
    said = Message(Role.ASSISTANT, (Text("half"),))
    numbers = LogprobRun.of([-0.5, -0.5, -0.5])
    known = PartialChoice(numbers, LogprobsMode.RAW, 1.0, (FinishedItem(said, 2),))
    journal.records += [
        CallFailed(
            "ro", "c0", journal.now(), FailReason.ENGINE_UNREACHABLE, "it broke", partial_S=IdRun.of([30, 31, 32]),
            partials=(known,),
        ),
        AnswerResumed("ro", "c0", 0, 2, journal.now()),
    ]  # fmt: skip
    resumed = NodeRef("c0")
    journal.runs[resumed] = IdRun.of([1, PAD, 5, 6, 7, 30, 31])
    journal.start("c1", [4, 8, 9, 10], resumed, placeholder_id=PAD)
    journal.commit("c1", journal.choice("c1", [31, 2], image_runs=(ImageRun(3, 3),), usage=Usage(13, 2)))
    rollout = assemble(journal.forest())
    (sequence,) = rollout.sequences
    assert sequence.token_ids.tolist() == [1, PAD, PAD, PAD, 5, 6, 7, 30, 31, 4, 8, 9, 10, 31, 2]
    assert (sequence.complete, [call.usage.prompt_tokens for call in rollout.calls]) == (True, [7, 13])
    assert errors(rollout) == []
