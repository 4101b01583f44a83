"""The table itself, and each of its entries on a request as the harness sends it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from turnstile.conversation import Call, CallKind
from turnstile.protocols import DIALECTS
from turnstile.protocols.base import WireRequest
from turnstile.protocols.quirks import KNOWN, apply
from turnstile.protocols.quirks.choosing import folded
from turnstile.protocols.quirks.entry import MarkAuxiliary, NameAgent, ToldOnly

ROOT = Path(__file__).parent.parent.parent.parent
BILLING = "x-anthropic-billing-header: cc_version=2.1.332.642; cc_entrypoint=sdk-cli;"
IDENTITY = "You are Claude Code, Anthropic's official CLI for Claude."
TITLE = {
    "type": "object",
    "properties": {"title": {"type": "string"}},
    "required": ["title"],
    "additionalProperties": False,
}
BASH: dict[str, Any] = {"name": "Bash", "input_schema": {"type": "object", "properties": {}}}
BASH_CHAT = {"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}
TASK = "Fix the bug in calc.py so that python3 test_calc.py passes."


def decoded(dialect: str, body: Mapping[str, object]) -> Call:
    (speaker,) = (each for each in DIALECTS if each.name == dialect)
    return speaker.decode(WireRequest(msgspec.json.encode(body), {}, speaker.paths[0])).call


def claude(*messages: object, system: str = "You help.", **more: object) -> Call:
    sent = [{"role": "user", "content": each} if isinstance(each, str) else each for each in messages]
    blocks = [{"type": "text", "text": text} for text in (BILLING, IDENTITY, system)]
    body: dict[str, object] = {"model": "m", "max_tokens": 64000, "system": blocks, "messages": sent, **more}
    return decoded("anthropic.messages", body)


def chat(system: str, *messages: object, **more: object) -> Call:
    sent = [{"role": "user", "content": each} if isinstance(each, str) else each for each in messages]
    return decoded("openai.chat", {"model": "m", "messages": [{"role": "system", "content": system}, *sent], **more})


def codex(text: str) -> Call:
    return decoded("openai.responses", {"model": "m", "input": text, "store": False})


ANSWERED: tuple[object, ...] = (TASK, {"role": "assistant", "content": "Done."})


def marked(call: Call, headers: Mapping[str, str] | None = None) -> tuple[tuple[str, ...], CallKind, str]:
    seen = apply(KNOWN, call, headers or {})
    return seen.quirks, seen.kind, seen.purpose


REQUESTS: dict[str, tuple[Call, dict[str, str], str]] = {
    "claude_code_quota": (
        decoded(
            "anthropic.messages", {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "quota"}]}
        ),
        {},
        "quota",
    ),
    "claude_code_title": (
        claude(TASK, tools=[], output_config={"format": {"type": "json_schema", "schema": TITLE}}),
        {},
        "title",
    ),
    "claude_code_topic": (
        claude(TASK, system="Analyze if this message indicates a new conversation topic. If it does, ..."),
        {},
        "topic",
    ),
    "claude_code_compaction": (
        claude(*ANSWERED, "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.\n\n- Do NOT ...", tools=[BASH]),
        {},
        "compaction",
    ),
    "claude_code_memory": (
        claude(*ANSWERED, "You are now acting as the memory extraction subagent. Analyze ...", tools=[BASH]),
        {},
        "memory",
    ),
    "codex_compaction": (codex("Summarise."), {"x-openai-subagent": "compact"}, "compaction"),
    "codex_memory": (codex("Remember."), {"x-openai-subagent": "memory_consolidation"}, "memory"),
    "opencode_compaction": (
        chat("You are an anchored context summarization assistant for coding sessions.", "The talk"),
        {},
        "compaction",
    ),
    "qwen_code_compaction": (
        chat("You summarise.", *ANSWERED, "First, reason in your scratchpad. Then, generate the <state_snapshot>."),
        {},
        "compaction",
    ),
    "qwen_code_memory": (
        chat(
            "You are now acting as the managed memory extraction subagent for an AI coding assistant.",
            *ANSWERED,
            "Save what is worth it.",
            tools=[BASH_CHAT],
        ),
        {},
        "memory",
    ),
    "aider_commit_message": (
        chat(
            "You are an expert software engineer that generates concise, one-line Git commit messages based on the "
            "provided diffs.\nReview ...",
            "# diffs",
        ),
        {},
        "commit_message",
    ),
    "smolagents_step_limit": (
        chat("An agent tried to answer a user query but it got stuck and failed to do so. You are tasked ...", TASK),
        {},
        "step_limit",
    ),
    "conversation_title": (
        chat(
            "You are a title generator. You output ONLY a thread title. Nothing else.\n\n<task>\n...",
            "Generate a title for this conversation:\n",
            f'"{TASK}"',
            reasoning_effort="low",
        ),
        {},
        "title",
    ),
}
AUXILIARY = [quirk.name for quirk in KNOWN if isinstance(quirk.action, MarkAuxiliary)]


def test_the_reference_page_is_what_the_table_prints() -> None:
    printed = subprocess.run([sys.executable, ROOT / "docs" / "print_quirks.py"], capture_output=True, check=True)
    assert (ROOT / "docs" / "reference" / "quirks.md").read_bytes() == printed.stdout


@pytest.mark.parametrize("quirk", KNOWN, ids=lambda quirk: quirk.name)
def test_an_entry_says_who_since_when_what_is_sent_what_is_done_and_where_it_stands(quirk: Any) -> None:
    told = [quirk.who, quirk.since, quirk.sends, quirk.effect, quirk.reference]
    assert all(told)
    assert not any("|" in text or "\n" in text for text in told)


def test_texts_stand_in_the_table_as_they_are_compared() -> None:
    assert [quirk.name for quirk in KNOWN if folded(quirk.when) != quirk.when] == []


@pytest.mark.parametrize("name", AUXILIARY)
def test_a_harnesss_own_call_is_marked_by_its_entry_and_by_no_other(name: str) -> None:
    call, headers, purpose = REQUESTS[name]
    seen, kind, told = marked(call, headers)
    named = {quirk.name for quirk in KNOWN if isinstance(quirk.action, NameAgent)}
    assert [each for each in seen if each not in named | {"billing_line"}] == [name]
    assert (kind, told) == (CallKind.AUXILIARY, purpose)


@pytest.mark.parametrize(
    "turn",
    [
        claude(TASK, tools=[BASH]),
        claude(TASK, tools=[BASH], output_config={"format": {"type": "json_schema", "schema": TITLE}}),
        claude(*ANSWERED, "More", output_config={"format": {"type": "json_schema", "schema": TITLE}}),
        claude("quota"),
        decoded("anthropic.messages", {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "Hi"}]}),
        chat("You write titles for newspaper articles.", "A dog bit a man."),
        chat("You are a coding agent.", "What does a title generator for this conversation do?"),
        chat("You help.", "Summarise this article in detail."),
        codex("quota"),
    ],
)
def test_an_agents_turn_stays_a_turn(turn: Call) -> None:
    seen, kind, _ = marked(turn)
    assert kind is CallKind.TURN
    assert set(seen) <= {"billing_line"}


@pytest.mark.parametrize(
    ("headers", "name", "parent", "quirk"),
    [
        ({"x-claude-code-agent-id": "a423c73ce038889d8"}, "a423c73ce038889d8", "", "claude_code_sub_agent"),
        (
            {"x-openai-subagent": "collab_spawn", "thread-id": "t2", "x-codex-parent-thread-id": "t1"},
            "collab_spawn/t2",
            "t1",
            "codex_sub_agent",
        ),
        ({"x-session-id": "ses_2", "x-parent-session-id": "ses_1"}, "ses_2", "ses_1", "opencode_sub_agent"),
    ],
)
def test_case_c6_a_sub_agent_is_named_by_the_headers_of_its_harness(
    headers: dict[str, str], name: str, parent: str, quirk: str
) -> None:
    seen = apply(KNOWN, chat("You help.", TASK), headers)
    assert (seen.agent_name, seen.parent_agent, seen.quirks, seen.kind) == (name, parent, (quirk,), CallKind.TURN)


@pytest.mark.parametrize(
    "headers", [{"x-session-id": "ses_1"}, {"thread-id": "t1", "session-id": "t1"}, {"x-claude-code-session-id": "s"}]
)
def test_the_main_agent_has_no_name_of_its_own(headers: dict[str, str]) -> None:
    assert apply(KNOWN, chat("You help.", TASK), headers).agent_name == ""


def test_what_is_told_only_changes_nothing() -> None:
    told = tuple(quirk for quirk in KNOWN if isinstance(quirk.action, ToldOnly))
    call = claude(TASK)
    assert len(told) > 10
    assert apply(told, call, {}) is call
