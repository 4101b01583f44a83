"""The cause of a first difference, told from the sampled text and what stands in its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnstile.conversation import Message, Role, Text, ToolCall
from turnstile.reports.drift_cause import DriftKind, Held, cause
from turnstile.server.local_files import read_model_folder
from turnstile.templates.facts import serve
from turnstile.templates.served import Served
from turnstile.tokens import IdRun, first_difference, join

HEAD = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
TAIL = "<|im_end|>\n<|im_start|>user\n"
CALL = (ToolCall("c", "ls", '{"p":"/a"}'),)


@pytest.fixture(scope="module")
def served(tools_folder: Path) -> Served:
    return serve(read_model_folder(tools_folder), model="m", stop_ids=frozenset())


def said(text: str, reasoning: str = "", calls: tuple[ToolCall, ...] = ()) -> Message:
    return Message(Role.ASSISTANT, (Text(text),) if text else (), reasoning, calls)


def caused(served: Served, head: str, sampled: list[str], message: Message, rendered: str) -> DriftKind:
    """Of an answer that was sampled in these pieces and is rendered as that text behind its head."""
    ids = join([served.tokenizer.encode(piece) for piece in sampled])
    start = served.tokenizer.encode(head)
    held_T = start + ids
    again = served.tokenizer.encode(rendered)
    at = first_difference(held_T, again)
    assert at is not None
    return cause(served, Held(held_T, ((len(start), len(held_T)),), (message,)), again, at)


@pytest.mark.parametrize(
    ("sampled", "message", "rendered", "kind"),
    [
        (["H", "ello", "<|im_end|>"], said("Hello"), "Hello" + TAIL, DriftKind.RETOKENIZATION),
        (["\n", "\n", "Hi", "<|im_end|>"], said("\n\nHi"), "\n\nHi" + TAIL, DriftKind.RETOKENIZATION),
        (["H", "ello you", "<|im_end|>"], said("Hello you"), "Hello  you" + TAIL, DriftKind.RETOKENIZATION),
        (["Hello", " \n", "<|im_end|>"], said("Hello"), "Hello" + TAIL, DriftKind.WHITESPACE),
        (["Hello there", "<|im_end|>"], said("Hello you"), "Hello you" + TAIL, DriftKind.EDITED),
        (["Hello STOP"], said("Hello"), "Hello" + TAIL, DriftKind.EDITED),
        (["Hello", "<|endoftext|>"], said("Hello"), "Hello" + TAIL, DriftKind.EDITED),
        (["Hello", "<|im_end|>"], said("Hello"), "Hello<|endoftext|>", DriftKind.SCAFFOLD),
        (["<think>R</think>A", "<|im_end|>"], said("A", "R"), "A" + TAIL, DriftKind.THINKING),
        (["<think>\n\n</think>\n\nA", "<|im_end|>"], said("A"), "A" + TAIL, DriftKind.THINKING),
        (["<think>\n\n</think>\n\n", '{"name":"ls"}'], said("", calls=CALL), '{"name": "ls"}', DriftKind.THINKING),
        (['{"name":"ls"}', "<|im_end|>"], said("", calls=CALL), '{"name": "ls"}' + TAIL, DriftKind.JSON),
        (['Now.\n{"name":"ls"}', "<|im_end|>"], said("Now.", calls=CALL), 'Now.\n{"name": "ls"}', DriftKind.JSON),
    ],
)  # fmt: skip
def test_each_cause_is_told_from_the_texts(
    served: Served, sampled: list[str], message: Message, rendered: str, kind: DriftKind
) -> None:
    assert caused(served, HEAD, sampled, message, HEAD + rendered) is kind


def test_a_block_of_reasoning_that_the_prompt_opened_and_a_template_leaves_out_is_thinking(served: Served) -> None:
    opened = HEAD + "<think>\n"
    told = caused(served, opened, ["R</think>A", "<|im_end|>"], said("A", "R"), HEAD + "A" + TAIL)
    assert told is DriftKind.THINKING
    empty = caused(served, HEAD + "<think>\n\n</think>\n\n", ["A", "<|im_end|>"], said("A"), HEAD + "A" + TAIL)
    assert empty is DriftKind.SCAFFOLD


@pytest.mark.parametrize("rendered", [HEAD.replace("Hi", "Ho") + "A" + TAIL, HEAD + "A<|im_end|>\n<|im_start|>tool"])
def test_what_differs_outside_of_answers_is_scaffold(served: Served, rendered: str) -> None:
    held_T = served.tokenizer.encode(HEAD + "A" + TAIL)
    start = len(served.tokenizer.encode(HEAD))
    again = served.tokenizer.encode(rendered)
    at = first_difference(held_T, again)
    assert at is not None
    held = Held(held_T, ((start, start + 2),), (said("A"),))
    assert cause(served, held, again, at) is DriftKind.SCAFFOLD


def test_an_id_without_text_drifts_as_a_spelling(served: Served) -> None:
    cut = served.tokenizer.encode("🙂").slice(0, 1)
    start = served.tokenizer.encode(HEAD)
    held_T = start + cut
    again = served.tokenizer.encode(HEAD + "�" + TAIL)
    at = first_difference(held_T, again)
    assert at is not None
    held = Held(IdRun(held_T.packed), ((len(start), len(held_T)),), (said("�"),))
    assert cause(served, held, again, at) is DriftKind.RETOKENIZATION
