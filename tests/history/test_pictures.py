"""Where the images of a path are, and what is known of each."""

from __future__ import annotations

import msgspec
import pytest

from turnstile.expansion import ExpandedIds, ImageRange
from turnstile.history.pictures import ImagePlace, known_runs, pictures, run_ids, run_lengths, spelled_out
from turnstile.journal import CallStarted, ImageRun, ShownImage, TurnCommitted
from turnstile.tokens import IdRun

PAD = 7
THREE, TWO = ImageRun(3, 3), ImageRun(2, 2)


def shown(at: int, name: str = "ab") -> ShownImage:
    return ShownImage(at, name * 32, "image/png", 10, 28, 28)


@pytest.fixture
def looked(dialogue):
    """Two turns, each of which added an image as the second of its three new ids, and each told of its own."""
    records = dialogue.user("u1").sampled("a1").user("u2").sampled("a2").records
    return shown_in(records, (THREE,), (TWO,))


def shown_in(records, *told):
    """The records with an image in each call, and what each answer says was run."""
    names, runs = iter(("ab", "cd", "ef")), iter(told)

    def pictured(record):
        match record:
            case CallStarted():
                return msgspec.structs.replace(record, images=(shown(1, next(names)),), placeholder_id=PAD)
            case TurnCommitted():
                choice = msgspec.structs.replace(record.choices[0], image_runs=next(runs))
                return msgspec.structs.replace(record, choices=(choice,))
            case _:
                return record

    return [pictured(record) for record in records]


def forest_of(dialogue, records):
    return type(dialogue.forest).of(records)


def test_the_images_of_a_path_stand_where_their_calls_put_them(dialogue, looked):
    forest = forest_of(dialogue, looked)
    first, second = forest.nodes
    assert [(str(each.place.call_id), each.at, each.run) for each in pictures(second)] == [
        (first.ref.call_id, 1, THREE),
        (second.ref.call_id, first.length + 1, TWO),
    ]


def test_of_a_path_that_is_kept_in_part_only_those_images_are_there(dialogue, looked):
    forest = forest_of(dialogue, looked)
    first, second = forest.nodes
    assert pictures(second, first.length + 1) == pictures(first)
    assert pictures(second, 1) == ()


def test_what_a_later_answer_tells_of_an_earlier_image_counts_for_the_whole_rollout(dialogue):
    records = dialogue.user("u1").sampled("a1").user("u2").sampled("a2").records
    forest = forest_of(dialogue, shown_in(records, (), (THREE, TWO)))
    first, second = forest.nodes
    assert [each.run for each in pictures(first)] == [None]
    assert known_runs(forest) == {
        ImagePlace(first.ref.call_id, 0): THREE,
        ImagePlace(second.ref.call_id, 0): TWO,
    }


def test_an_image_that_only_a_path_left_behind_has_is_known_too(dialogue):
    dialogue.user("u1").sampled("a1").user("u2").sampled("a2")
    records = dialogue.back_to(1).sampled("a3").records
    forest = forest_of(dialogue, shown_in(records, (THREE,), (TWO,), (THREE,)))
    assert sorted(known_runs(forest).items()) == [
        (ImagePlace(node.ref.call_id, 0), run) for node, run in zip(forest.nodes, (THREE, TWO, THREE), strict=True)
    ]


def test_an_image_is_as_long_as_when_it_was_shown_last(dialogue, looked):
    assert run_lengths(forest_of(dialogue, looked)) == {"ab" * 32: 3, "cd" * 32: 2}


def test_without_images_nothing_is_known(dialogue):
    dialogue.user("u1").sampled("a1")
    assert (known_runs(dialogue.forest), run_lengths(dialogue.forest)) == ({}, {})
    assert pictures(dialogue.forest.nodes[0]) == ()


def test_ids_are_spelled_out_around_what_is_not_known():
    mixed = ImageRun(3, 2, IdRun.of([PAD, 8, PAD]))
    ids = IdRun.of([1, PAD, 2, PAD, 3, PAD])
    assert spelled_out(ids, PAD, [(1, TWO), (3, None), (5, mixed)]) == ExpandedIds(
        IdRun.of([1, PAD, PAD, 2, PAD, 3, PAD, 8, PAD]),
        (ImageRange(1, 2, 2), ImageRange(4, 1, 0), ImageRange(6, 3, 2)),
    )


def test_a_run_is_its_placeholders_or_the_ids_that_it_names():
    assert run_ids(ImageRun(2, 2), PAD) == IdRun.of([PAD, PAD])
    assert run_ids(ImageRun(2, 1, IdRun.of([PAD, 8])), PAD) == IdRun.of([PAD, 8])
    assert run_ids(None, PAD) == IdRun.of([PAD])
