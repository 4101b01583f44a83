"""What a client of text would have done to the tokens: kinds, places and counts."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from turnstile.conversation import Message, Role, Text, ToolCall
from turnstile.reports.drift import DriftKind, Told, difference, report
from turnstile.server.start import read_model_folder
from turnstile.templates.facts import serve
from turnstile.templates.render import GenerationPrompt
from turnstile.templates.served import Scene, Served, render
from turnstile.tokens import IdRun, join

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HI = Message(Role.USER, (Text("Hi"),))
TOOLS = ('{"type":"function","function":{"name":"ls","parameters":{}}}',)


@pytest.fixture(scope="module")
def served(tools_folder: Path) -> Served:
    return serve(read_model_folder(tools_folder), model="m", stop_ids=frozenset())


def told(served: Served, sampled: IdRun, message: Message, tools: tuple[str, ...] = ()) -> Told:
    """A sequence of one turn whose answer was sampled as these ids."""
    head = "You are a helpful assistant."
    prompt = served.tokenizer.encode(
        f"<|im_start|>system\n{head}<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    if tools:
        prompt = served.tokenizer.encode(render(served, Scene((), tools, "{}", NOW), (HI,), GenerationPrompt.ADD))
    ids_T = join((prompt, sampled))
    return Told(
        "sequence of c0",
        ids_T,
        (HI, message),
        tools,
        "{}",
        NOW,
        GenerationPrompt.OMIT,
        ((len(prompt), len(ids_T)),),
        (message,),
    )


def said(text: str, reasoning: str = "", calls: tuple[ToolCall, ...] = ()) -> Message:
    return Message(Role.ASSISTANT, (Text(text),) if text else (), reasoning, calls)


def test_a_text_that_spells_itself_again_does_not_drift(served: Served) -> None:
    assert difference(served, told(served, served.tokenizer.encode("Hello<|im_end|>"), said("Hello"))) is None


@pytest.mark.parametrize(
    ("sampled", "message", "kind", "at"),
    [
        (["H", "ello", "<|im_end|>"], said("Hello"), DriftKind.RETOKENIZATION, 0),
        (["Hello", " \n", "<|im_end|>"], said("Hello"), DriftKind.WHITESPACE, 1),
        (["Hello there", "<|im_end|>"], said("Hello you"), DriftKind.TEXT, 1),
        (["<think>R</think>A", "<|im_end|>"], said("A", reasoning="R"), DriftKind.THINKING, 0),
    ],
)  # fmt: skip
def test_each_kind_of_drift_is_told_with_its_place(
    served: Served, sampled: list[str], message: Message, kind: DriftKind, at: int
) -> None:
    ids = join([served.tokenizer.encode(piece) for piece in sampled])
    run = told(served, ids, message)
    found = difference(served, run)
    assert found is not None
    start, end = run.sampled[0]
    assert (found.kind, found.index, found.wrong) == (kind, start + at, end - start - at)


def test_a_call_that_is_written_again_is_json_drift(served: Served) -> None:
    sampled = served.tokenizer.encode('<tool_call>\n{"name":"ls","arguments":{"p":"/a"}}\n</tool_call><|im_end|>')
    message = said("", calls=(ToolCall("c", "ls", '{"p":"/a"}'),))
    found = difference(served, told(served, sampled, message, TOOLS))
    assert found is not None
    assert found.kind is DriftKind.JSON
    assert '{"name":"' in found.held
    assert '{"name": "' in found.rendered


def test_another_spelling_is_told_with_the_ids_of_both_sides(served: Served) -> None:
    def ids(*pieces: str) -> tuple[int, ...]:
        return tuple(each for piece in pieces for each in served.tokenizer.encode(piece).tolist())

    sampled = join([served.tokenizer.encode(piece) for piece in ("The", " H", "ello", " sea", "<|im_end|>")])
    found = difference(served, told(served, sampled, said("The Hello sea")))
    assert found is not None
    assert (found.held_ids, found.rendered_ids) == (ids(" H", "ello"), ids(" Hello"))
    assert found.held == "\nThe Hello sea<|im_end|>"
    assert found.rendered.startswith("\nThe Hello sea<|im_end|>")


def test_sides_that_never_meet_again_are_told_with_their_first_ids(served: Served) -> None:
    sampled = served.tokenizer.encode("Hello there, dear people of the sea and of the land<|im_end|>")
    found = difference(served, told(served, sampled, said("Hello you")))
    assert found is not None
    assert found.held_ids == tuple(sampled.slice(1, 11).tolist())
    assert 0 < len(found.rendered_ids) <= 10


def test_a_difference_before_the_first_answer_is_scaffold_and_makes_every_sampled_id_wrong(served: Served) -> None:
    run = told(served, served.tokenizer.encode("Hello<|im_end|>"), said("Hello"))
    changed = msgspec.structs.replace(run, messages=(Message(Role.USER, (Text("Ho"),)), run.messages[1]))
    found = difference(served, changed)
    assert found is not None
    assert (found.kind, found.wrong) == (DriftKind.SCAFFOLD, run.sampled[0][1] - run.sampled[0][0])


def test_a_history_that_the_template_refuses_is_told_in_its_own_words(tools_folder: Path) -> None:
    files = msgspec.structs.replace(
        read_model_folder(tools_folder),
        chat_template="{% if messages|length > 1 %}{{ raise_exception('no') }}{% endif %}x",
    )
    strict = serve(files, model="m", stop_ids=frozenset())
    found = difference(strict, told(strict, strict.tokenizer.encode("Hello<|im_end|>"), said("Hello")))
    assert found is not None
    assert (found.kind, found.index) == (DriftKind.RENDER_FAILED, 0)
    assert "no" in found.rendered


def test_a_report_adds_up_sequences_and_keeps_prompts_apart(served: Served) -> None:
    plain = told(served, served.tokenizer.encode("Hello<|im_end|>"), said("Hello"))
    split = told(served, join([served.tokenizer.encode(piece) for piece in ("H", "ello", "<|im_end|>")]), said("Hello"))
    found = report("r", [(served, split)], [(served, plain), (served, split)])
    assert (found.prompts, found.prompts_differing, found.sequences, found.sequences_differing) == (1, 1, 2, 1)
    assert (found.sampled, found.wrong, found.wrong_by_kind) == (2 + 3, 3, {"retokenization": 3})
    assert len(found.differences) == 2
