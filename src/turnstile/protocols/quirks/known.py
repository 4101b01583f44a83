"""The habits of real harnesses, as measured or read in their sources."""

from __future__ import annotations

from turnstile.protocols.quirks.entry import (
    Answers,
    HeaderTest,
    MarkAuxiliary,
    NameAgent,
    Quirk,
    RemoveSystemLine,
    ToldOnly,
    ToolsShown,
    When,
)

_CLAUDE_CODE = "Claude Code, claude-agent-sdk"
_MEASURED = "requests recorded in 2026-12"

_REMOVED = (
    Quirk(
        "billing_line",
        RemoveSystemLine("x-anthropic-billing-header:"),
        who=_CLAUDE_CODE,
        since="2.1.15, still in 2.1.332",
        sends="A first system block, or first line, `x-anthropic-billing-header: cc_version=...`, whose end differs "
        "between main agent, title and sub-agents, changes at compaction, and in some versions with every request",
        effect="Taken out of prompt and head. A user's message that has such a line keeps it",
        reference=f"{_MEASURED}; vllm-project/vllm#36829, ggml-org/llama.cpp#20623",
    ),
)

_AUXILIARY = (
    Quirk(
        "claude_code_quota",
        MarkAuxiliary("quota"),
        When(tools=ToolsShown.NONE, answers=Answers.NONE, max_tokens=1, user_is="quota"),
        who="Claude Code",
        since="1.0; not seen in `-p` mode of 2.1",
        sends="The word `quota` with a limit of one token, to see whether the key has any left",
        effect="Auxiliary: `quota`",
        reference="NVIDIA-NeMo/Gym#2742",
    ),
    Quirk(
        "claude_code_title",
        MarkAuxiliary("title"),
        When(tools=ToolsShown.NONE, answers=Answers.NONE, output_fields=("title",)),
        who=_CLAUDE_CODE,
        since="2.1.197; by claude-agent-sdk 0.2.189 with 2.1.332",
        sends="Beside the first turn, a request without tools whose answer is an object with the one member `title`",
        effect="Auxiliary: `title`",
        reference=_MEASURED,
    ),
    Quirk(
        "claude_code_topic",
        MarkAuxiliary("topic"),
        When(tools=ToolsShown.NONE, system_has=("if this message indicates a new conversation topic",)),
        who="Claude Code",
        since="1.0 to 2.1.15",
        sends="Each user message alone, with the question whether it begins a new topic",
        effect="Auxiliary: `topic`",
        reference="the client's own prompt",
    ),
    Quirk(
        "claude_code_compaction",
        MarkAuxiliary("compaction"),
        When(
            last_user_has=(
                "critical: respond with text only. do not call any tools",
                "your task is to create a detailed summary of the conversation",
            )
        ),
        who=_CLAUDE_CODE,
        since="1.0, still in 2.1.332",
        sends="Head and history of the agent, and behind them the request for a summary in text only",
        effect="Auxiliary: `compaction`. The turns before it keep their sequence; what follows is a new root by nature",
        reference=_MEASURED,
    ),
    Quirk(
        "codex_compaction",
        MarkAuxiliary("compaction"),
        When(headers=(HeaderTest("x-openai-subagent", "compact"),)),
        who="Codex CLI",
        since="read in its source; not provoked with 0.171.0",
        sends="`x-openai-subagent: compact`",
        effect="Auxiliary: `compaction`",
        reference="openai/codex, the session sources of its API client",
    ),
    Quirk(
        "codex_memory",
        MarkAuxiliary("memory"),
        When(headers=(HeaderTest("x-openai-subagent", "memory_consolidation"),)),
        who="Codex CLI",
        since="read in its source; not provoked with 0.171.0",
        sends="`x-openai-subagent: memory_consolidation`",
        effect="Auxiliary: `memory`",
        reference="openai/codex, the session sources of its API client",
    ),
    Quirk(
        "opencode_compaction",
        MarkAuxiliary("compaction"),
        When(
            tools=ToolsShown.NONE,
            system_has=(
                "anchored context summarization assistant",
                "you are a helpful ai assistant tasked with summarizing conversations",
            ),
        ),
        who="opencode; older versions of Claude Code",
        since="1.18.33; the second wording in earlier ones",
        sends="A system prompt of its own and the whole talk as one user message",
        effect="Auxiliary: `compaction`. The next turn has a new history, which is a new root by nature",
        reference=_MEASURED,
    ),
    Quirk(
        "qwen_code_compaction",
        MarkAuxiliary("compaction"),
        When(tools=ToolsShown.NONE, last_user_has=("generate the <state_snapshot>",)),
        who="qwen-code, gemini-cli",
        since="qwen-code 0.24.4",
        sends="A system prompt of its own, the history, and a last message that asks for a `<state_snapshot>`",
        effect="Auxiliary: `compaction`",
        reference=_MEASURED,
    ),
    Quirk(
        "qwen_code_memory",
        MarkAuxiliary("memory"),
        When(system_has=("managed memory extraction subagent",)),
        who="qwen-code",
        since="0.24.4, behind a run that was continued",
        sends="The main agent's whole history under a system prompt and tools of its own, and then its turns",
        effect="Auxiliary: `memory`, all of its turns",
        reference=f"{_MEASURED}; qwen-code's memory agents",
    ),
    Quirk(
        "claude_code_memory",
        MarkAuxiliary("memory"),
        When(last_user_has=("you are now acting as the memory extraction subagent",)),
        who="Claude Code",
        since="read in descriptions of 2.1; not seen in `-p` mode",
        sends="The main agent's head and history, and behind them the request to keep what is worth remembering",
        effect="That request is auxiliary: `memory`; the turns behind its tool calls are not recognised",
        reference="the client's own prompt",
    ),
    Quirk(
        "aider_commit_message",
        MarkAuxiliary("commit_message"),
        When(tools=ToolsShown.NONE, system_has=("one-line git commit messages based on the provided diffs",)),
        who="aider",
        since="0.86.2",
        sends="After each edit, the diff with a system prompt of its own, not streamed",
        effect="Auxiliary: `commit_message`",
        reference=f"{_MEASURED}; aider's prompts.py",
    ),
    Quirk(
        "smolagents_step_limit",
        MarkAuxiliary("step_limit"),
        When(system_has=("an agent tried to answer a user query but it got stuck",)),
        who="smolagents",
        since="1.26.0",
        sends="At the step limit, the agent's memory under another system prompt, without tools",
        effect="Auxiliary: `step_limit`",
        reference=f"{_MEASURED}; smolagents' prompts",
    ),
    Quirk(
        "conversation_title",
        MarkAuxiliary("title"),
        When(
            tools=ToolsShown.NONE,
            answers=Answers.NONE,
            system_has=(
                "only a thread title",
                "title for this conversation",
                "title for the conversation",
                "title for the following conversation",
                "title of this conversation",
                "title of the conversation",
                "title for this chat",
                "title for the chat",
                "title for this session",
                "title for the session",
                "title for this coding session",
                "conversation title",
            ),
        ),
        who="opencode, and others that name their conversations",
        since="opencode 1.18.33",
        sends="Before the first turn, the task under a system prompt that asks for a title, without tools",
        effect="Auxiliary: `title`",
        reference=_MEASURED,
    ),
)

_AGENTS = (
    Quirk(
        "claude_code_sub_agent",
        NameAgent(("x-claude-code-agent-id",)),
        who=_CLAUDE_CODE,
        since="2.1.332",
        sends="`x-claude-code-agent-id` with a sub-agent's requests, which overlap with the main agent's",
        effect="The id is the call's `agent_name`",
        reference=_MEASURED,
    ),
    Quirk(
        "codex_sub_agent",
        NameAgent(("x-openai-subagent", "thread-id"), "x-codex-parent-thread-id"),
        When(headers=(HeaderTest("x-openai-subagent"),)),
        who="Codex CLI",
        since="0.171.0",
        sends="`x-openai-subagent` (`collab_spawn`, `review`, ...), its own `thread-id` and `x-codex-parent-thread-id`",
        effect="Kind and thread are the call's `agent_name`, the parent's thread its `parent_agent`",
        reference=_MEASURED,
    ),
    Quirk(
        "opencode_sub_agent",
        NameAgent(("x-session-id",), "x-parent-session-id"),
        When(headers=(HeaderTest("x-parent-session-id"),)),
        who="opencode",
        since="1.18.33",
        sends="`x-parent-session-id` with a sub-agent's requests, beside its own `x-session-id`",
        effect="The session is the call's `agent_name`, the parent's session its `parent_agent`",
        reference=_MEASURED,
    ),
)


def _told(name: str, who: str, since: str, sends: str, effect: str) -> Quirk:
    return Quirk(name, ToldOnly(), who=who, since=since, sends=sends, effect=effect, reference=_MEASURED)


_FORGIVEN = (
    _told(
        "cache_marks_move",
        _CLAUDE_CODE,
        "2.1.197",
        "`cache_control` on another block at each turn",
        "Never part of a message's identity",
    ),
    _told(
        "block_becomes_string",
        _CLAUDE_CODE,
        "2.1.332",
        "A system message as a list of one text block, then as a string",
        "A string equals its one text block",
    ),
    _told(
        "arguments_filled",
        _CLAUDE_CODE,
        "2.1.197",
        "Tool calls with the schema's defaults filled in and keys in the schema's order",
        "The call that its id names stands as it was sampled (`normalised:arguments_added`)",
    ),
    _told(
        "arguments_respelt",
        "qwen-code, opencode, pydantic-ai",
        "0.15.10, 1.18.33, 2.62.0",
        "Tool calls parsed and written again without spaces",
        "Arguments are equal as JSON values, and the sampled ids stand",
    ),
    _told(
        "blank_text_dropped",
        _CLAUDE_CODE,
        "2.1.332",
        "An answer without its text that was whitespace only",
        "Empty, null, missing and blank text are equal",
    ),
    _told(
        "results_in_order_of_completion",
        _CLAUDE_CODE,
        "2.1.332",
        "Results of parallel calls in the order in which they came",
        "Rendered in that order; paired by id",
    ),
    _told(
        "thinking_dropped",
        "gemini-cli, openai-agents",
        "0.61.0, 0.24.0",
        "Answers without their thinking",
        "Thinking may be absent; the sampled ids stand",
    ),
    _told(
        "thinking_twice",
        "mini-swe-agent (litellm)",
        "2.4.6",
        "Thinking under two names at once",
        "Read once",
    ),
    _told(
        "thought_signature_constant",
        "gemini-cli",
        "0.61.0, in a run that was resumed",
        "Every `thoughtSignature` replaced by one constant",
        "No key any more; found by what the messages say",
    ),
    _told(
        "tools_empty",
        "Claude Code",
        "2.1.197",
        "`tools: []` in a request without tools",
        "The same as no `tools` at all",
    ),
    _told(
        "environment_context",
        "Codex CLI",
        "0.171.0",
        "Base prompt, permissions and `<environment_context>` as the first messages of `input`, constant in a run",
        "Developer messages are system messages, wherever they stand; a fresh one behind the history is appended",
    ),
    _told(
        "finished_items_kept",
        "Codex CLI",
        "0.171.0",
        "After a stream that broke, the items of it that were whole, as history",
        "Looked for among what was sampled; else an answer that nobody sampled",
    ),
)

_EDITS = (
    _told(
        "system_reminders",
        _CLAUDE_CODE,
        "2.1.197",
        "System messages behind tool results, which stay; `<system-reminder>` texts that come and go",
        "One that stays is appended. One that goes is an edit: a fork `message_edited`",
    ),
    _told(
        "first_message_rebuilt",
        "qwen-code, gemini-cli",
        "0.24.4, 0.61.0, in a run that was continued",
        "System prompt or first user message with a new folder tree and git status",
        "An edit: a new root",
    ),
    _told(
        "partial_answer_joined",
        "qwen-code",
        "0.24.4",
        "After a cut, the partial text and a request to go on; later both as one answer, with repetitions removed",
        "An answer that nobody sampled: a fork",
    ),
    _told(
        "calls_as_python",
        "smolagents",
        "1.26.0",
        "Answers with `Calling tools:` and a Python literal behind the text that was sampled",
        "The context really differs at every turn: a fork with its reason",
    ),
    _told(
        "files_moved",
        "aider",
        "0.86.2",
        "A history that is built again for each user turn, with the files behind it",
        "The context really differs: a new root or a fork with its reason",
    ),
    _told(
        "sub_agents_by_head",
        "qwen-code, gemini-cli",
        "0.24.4, 0.61.0",
        "Sub-agents without any header, with another system prompt and other tools",
        "A root of their own (`head_changed`), without a name",
    ),
)

KNOWN: tuple[Quirk, ...] = (*_REMOVED, *_AUXILIARY, *_AGENTS, *_FORGIVEN, *_EDITS)
"""All that are known; of several that mark a call as auxiliary the first one counts."""
