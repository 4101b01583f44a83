"""What a client of text would have done to the tokens: kinds, places and counts."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from turnstile.conversation import Message, Role, Text, ToolCall
from turnstile.reports.drift import Comparer, Difference, DriftKind, Figures, Run, RunKind, of_run, total
from turnstile.reports.drift_cause import Held
from turnstile.reports.drift_sources import report
from turnstile.reports.text_client import Conversation
from turnstile.server.local_files import read_model_folder
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


def difference(served: Served, run: Run) -> Difference | None:
    return Comparer().difference(served, run)


def told(served: Served, sampled: IdRun, message: Message, tools: tuple[str, ...] = ()) -> Run:
    """A sequence of one turn whose answer was sampled as these ids."""
    prompt = served.tokenizer.encode(render(served, Scene((), tools, "{}", NOW), (HI,), GenerationPrompt.ADD))
    ids_T = join((prompt, sampled))
    return Run(
        RunKind.SEQUENCE,
        "c0",
        Conversation((HI, message), tools, "{}", NOW),
        Held(ids_T, ((len(prompt), len(ids_T)),), (message,)),
        trained=1,
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
        (["Hello there", "<|im_end|>"], said("Hello you"), DriftKind.EDITED, 1),
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
    start, end = run.held.sampled[0]
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
    other = msgspec.structs.replace(run.said, messages=(Message(Role.USER, (Text("Ho"),)), run.said.messages[1]))
    changed = msgspec.structs.replace(run, said=other)
    found = difference(served, changed)
    assert found is not None
    assert (found.kind, found.wrong) == (DriftKind.SCAFFOLD, run.sampled)


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
    prompt = Run(
        RunKind.PROMPT,
        "c1",
        msgspec.structs.replace(split.said, messages=(*split.said.messages, HI)),
        Held(split.held.ids_T + tail(served), split.held.sampled, split.held.answers),
        trained=1,
        history="spliced",
    )
    runs = (prompt, plain, split)
    found = report("r", [(run, difference(served, run)) for run in runs])
    assert (found.calls, found.calls_compared, found.calls_differing, found.calls_by_kind) == (
        1, 1, 1, {"retokenization": 1},
    )  # fmt: skip
    assert (found.prompt_sampled, found.prompt_wrong, found.prompt_wrong_by_kind) == (3, 3, {"retokenization": 3})
    assert (found.sequences, found.sequences_compared, found.sequences_differing) == (2, 2, 1)
    assert (found.sampled, found.wrong, found.wrong_by_kind) == (2 + 3, 3, {"retokenization": 3})
    assert [each.where for each in found.differences] == ["prompt of c1", "sequence of c0"]
    (call,) = found.by_call
    assert (call.call_id, call.history, call.tokens) == ("c1", "spliced", len(prompt.held.ids_T))
    assert (call.sampled, call.wrong, call.kind) == (3, 3, DriftKind.RETOKENIZATION)


def tail(served: Served) -> IdRun:
    return served.tokenizer.encode("\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")


def test_figures_add_up_kind_by_kind() -> None:
    first = Figures(calls=2, calls_compared=1, wrong=3, wrong_by_kind={"json": 3})
    second = Figures(calls=1, wrong=2, wrong_by_kind={"json": 1, "thinking": 1})
    assert total([first, second]) == Figures(
        calls=3, calls_compared=1, wrong=5, wrong_by_kind={"json": 4, "thinking": 1}
    )
    assert total([]) == Figures()


def test_what_is_put_back_from_another_prefix_is_no_token_that_is_trained_here(served: Served) -> None:
    split = told(served, join([served.tokenizer.encode(piece) for piece in ("H", "ello", "<|im_end|>")]), said("Hello"))
    replayed = msgspec.structs.replace(split, trained=0)
    found = difference(served, replayed)
    assert found is not None
    assert (found.kind, found.wrong, of_run(replayed, found).sampled) == (DriftKind.RETOKENIZATION, 0, 0)
