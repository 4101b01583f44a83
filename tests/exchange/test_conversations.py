"""What holds for every conversation on every template: an engine that draws anything, a client that does anything.

The engine draws ids, control tokens among them, and ends where it likes; answers are handed out by the real parser.
The client sends its history back, edits it, leaves answers out, goes back, renames ids, trims, takes answers with
several calls apart, adds answers of its own and has messages continued. `TURNSTILE_CONVERSATIONS` = how many
conversations a family has (default 12), `TURNSTILE_FAMILIES=all` = on all families.
"""

from __future__ import annotations

import os
import string
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from turnstile.conversation import Call, Ending, Message, Role, Sampling, Text, ToolCall, ToolMode, ToolSpec, Usage
from turnstile.engines.base import Capabilities
from turnstile.errors import CallerError
from turnstile.exchange.checks import verify
from turnstile.exchange.draws import draw_for
from turnstile.exchange.inflight import Flight
from turnstile.exchange.records import Planned, Sampled, call_started, sampled_choice
from turnstile.exchange.sampling import Drawn
from turnstile.generation import (
    Delta,
    Draw,
    Finish,
    Forked,
    Free,
    Generation,
    LogprobsMode,
    NodeRef,
    Prompt,
    Rerendered,
    Root,
    Spliced,
)
from turnstile.history.forest import Forest
from turnstile.history.match import match
from turnstile.journal import CallFailed, Record, RolloutOpened, TurnCommitted, decode, encode
from turnstile.parsing.formats import AnswerFormat, detect
from turnstile.parsing.parser import Parser, ParserSetup
from turnstile.reasons import FailReason, ForkReason
from turnstile.templates.facts import Served, serve
from turnstile.templates.files import ModelFiles
from turnstile.templates.plan import head_of_call, plan
from turnstile.tokens import IdRun, LogprobRun, SegmentKind, tiling_fault
from turnstile.trajectory.assemble import assemble
from turnstile.trajectory.validate import validate

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
CAPABILITIES = Capabilities("made-up", "0", ("m",), None, None, None, "", frozenset(), frozenset(), 0, "ids")
FEW = (
    "qwen3", "qwen3.5", "llama3.1", "gpt-oss", "glm4.5", "gemma3", "deepseek-v3", "mistral-small-3.2", "phi3",
    "smollm2", "hermes3", "qwen3-coder",
)  # fmt: skip
ALL = (
    *FEW, "cohere2", "command-r7b", "deepseek-r1-distill", "deepseek-v3.1", "deepseek-v3.2", "deepseek-v4", "gemma4",
    "glm4.6", "glm4.7-flash", "granite4.0", "kimi-k2", "kimi-k2-thinking", "kimi-k2.5-fixed-miles", "kimi-k3", "lfm2.5",
    "llama3", "llama3.2", "minimax-m2", "minimax-m2.5-fixed-miles", "muse-glimmer", "nemotron3-nano", "nemotron3-super",
    "phi3.5", "qwen2.5", "qwen2.5-vl", "qwen3-fixed-miles", "qwen3-instruct-2507", "qwen3-training", "qwen3-vl",
    "qwen3.5-fixed-miles", "qwen3.5-nothink", "qwen3.6", "qwen3.8", "qwq-32b", "seed-oss", "smollm3",
)  # fmt: skip
FAMILIES = ALL if os.environ.get("TURNSTILE_FAMILIES") == "all" else FEW
CONVERSATIONS = int(os.environ.get("TURNSTILE_CONVERSATIONS", "12"))
STOP_STRING = " halt"
OF_THE_SHAPE = frozenset({ForkReason.STOP_MISMATCH, ForkReason.CONTINUED, ForkReason.NODE_INCOMPLETE})
"""Reasons to fork that lie in how an answer ended, not in what the client did."""


def tool(name: str) -> ToolSpec:
    return ToolSpec(
        name,
        f'{{"type":"function","function":{{"name":"{name}","description":"Do it","parameters":{{"type":"object",'
        '"properties":{"p":{"type":"string","description":"What with"}}}}}',
    )


TOOLS = (tool("ls"), tool("cat"))
TEXTS = st.sampled_from(
    [
        "go", " and then?\n", "", "  ", "\u6587\u4ef6 \U0001f642 e\u0301", "say <|im_end|> <|eot_id|> </s> <eos>",
        "<think>no</think>", '<tool_call>{"name":"ls"}</tool_call>', "a\r\nb\tc", "{{ messages }}", "x" * 200, "Hello",
    ]
)  # fmt: skip
CALLS = (
    '<tool_call>\n{"name": "ls", "arguments": {"p": "/a"}}\n</tool_call>',
    '<tool_call>{"name":"cat","arguments":{"p": "b" "c"}}</tool_call>',
    "<tool_call>\n<function=ls>\n<parameter=p>\n/a\n</parameter>\n</function>\n</tool_call>",
    '{"name": "ls", "parameters": {"p": "/a"}}',
)
WORDS = st.one_of(
    st.sampled_from(
        [" Plut", "or", "\n", "\n\n", " ", "Hello", " world", "\u6587", "\U0001f642", "</think>", "<think>"]
    ),
    st.text(string.printable, max_size=6),
)
PIECES = st.one_of(
    WORDS.map(lambda text: ("text", text)),
    WORDS.map(lambda text: ("text", text)),
    st.sampled_from(CALLS).map(lambda text: ("text", text)),
    st.just(("text", f"{CALLS[0]}\n{CALLS[0]}")),
    st.sampled_from([("text", "<think>\nhm \n</think>\n\n"), ("text", "<think>\nhm"), ("text", "\n</think>\n\n")]),
    st.integers(0, 10**6).map(lambda at: ("id", at)),
    st.integers(0, 10**6).map(lambda at: ("special", at)),
)
ENDINGS = st.sampled_from(["stop", "stop", "stop", "other stop", "length", "stop string"])
ANSWERS = st.tuples(st.lists(PIECES, max_size=6), ENDINGS)
ACTIONS = (
    "say", "say", "say", "results", "results", "again", "back", "edit", "omit", "rename", "same ids", "trim", "split",
    "forget thinking", "teach", "begin", "continue", "system", "tools", "parts", "compact",
)  # fmt: skip
STEPS = st.lists(
    st.tuples(st.sampled_from(ACTIONS), st.integers(0, 50), TEXTS, ANSWERS),
    min_size=2,
    max_size=9,
)


def said(role: Role, text: str, call_id: str = "") -> Message:
    return Message(role, (Text(text),) if text else (), call_id=call_id)


@dataclass
class Rollout:
    """One client, the engine, and all that is kept of them."""

    served: Served
    format: AnswerFormat
    forest: Forest = field(default_factory=Forest)
    records: list[Record] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    tools: tuple[ToolSpec, ...] = TOOLS
    is_plain: bool = False
    """Whether the client sends back just what it sent and was given, in any form that is forgiven, and goes on."""
    minted: int = 0
    last: tuple[Call, object] | None = None

    def keep(self, record: Record) -> None:
        stored = decode(encode(record))
        assert stored == record
        self.forest.apply(record)
        self.records.append(stored)

    # the client

    def step(self, action: str, at: int, text: str, answer: tuple[list[tuple[str, object]], str]) -> None:
        """Do something to the history, ask for the next message, and put that into it."""
        ending = getattr(self, f"do_{action.replace(' ', '_')}")(at, text) or Ending.ANSWER
        reply = self.ask(ending, answer)
        if reply is None:
            # What could not be rendered is taken back, as a client would after an error.
            del self.messages[max(0, len(self.messages) - 2) :]
            self.is_plain = False
            return
        if ending is Ending.CONTINUE:
            begun = self.messages.pop()
            joined = begun.text + reply.text
            reply = Message(
                Role.ASSISTANT, (Text(joined),) if joined else (), begun.reasoning + reply.reasoning,
                begun.calls + reply.calls,
            )  # fmt: skip
        self.messages.append(reply)
        self.is_plain = True

    def do_say(self, at: int, text: str) -> None:
        self._answer_calls()
        self.messages.append(said(Role.USER, text))

    def do_results(self, at: int, text: str) -> None:
        if not self._answer_calls(text, backwards=at % 2 == 1):
            self.messages.append(said(Role.USER, text))

    def do_again(self, at: int, text: str) -> None:
        if self.messages and self.messages[-1].role is Role.ASSISTANT:
            self.messages.pop()
        self._not_empty(text)
        self.is_plain = False

    def do_back(self, at: int, text: str) -> None:
        del self.messages[at % (len(self.messages) + 1) :]
        self.do_say(at, text)
        self.is_plain = False

    def do_edit(self, at: int, text: str) -> None:
        if self.messages:
            at %= len(self.messages)
            self.messages[at] = msgspec.structs.replace(self.messages[at], parts=(Text(text + "!"),))
        self.do_say(at, text)
        self.is_plain = False

    def do_omit(self, at: int, text: str) -> None:
        answers = [at for at, message in enumerate(self.messages) if message.role is Role.ASSISTANT]
        if answers:
            start = answers[at % len(answers)]
            end = start + 1
            while end < len(self.messages) and self.messages[end].role is Role.TOOL:
                end += 1
            del self.messages[start:end]
        self.do_say(at, text)
        self.is_plain = False

    def do_rename(self, at: int, text: str) -> None:
        self._with_ids(lambda call_id: call_id if call_id.startswith("my-") else f"my-{call_id}")
        self.do_results(at, text)

    def do_same_ids(self, at: int, text: str) -> None:
        self._with_ids(lambda _: "call_0")
        self.do_results(0, text)

    def _with_ids(self, name: Callable[[str], str]) -> None:
        for at, message in enumerate(self.messages):
            calls = tuple(ToolCall(name(call.call_id), call.name, call.arguments) for call in message.calls)
            call_id = name(message.call_id) if message.role is Role.TOOL else ""
            self.messages[at] = msgspec.structs.replace(message, calls=calls, call_id=call_id)

    def do_trim(self, at: int, text: str) -> None:
        self._each_answer(lambda m: msgspec.structs.replace(m, parts=(Text(m.text.strip()),) if m.text.strip() else ()))
        self.do_say(at, text)

    def do_forget_thinking(self, at: int, text: str) -> None:
        self._each_answer(lambda message: msgspec.structs.replace(message, reasoning=""))
        self.do_say(at, text)

    def do_parts(self, at: int, text: str) -> None:
        self._each_answer(lambda m: msgspec.structs.replace(m, parts=(Text(m.text[:1]), Text(m.text[1:]))))
        self.do_say(at, text)

    def _each_answer(self, change: Callable[[Message], Message]) -> None:
        for at, message in enumerate(self.messages):
            if message.role is Role.ASSISTANT:
                self.messages[at] = change(message)

    def do_split(self, at: int, text: str) -> None:
        """One answer with several calls comes back as several messages, each followed by its result."""
        self._answer_calls(text)
        out: list[Message] = []
        left = list(self.messages)
        while left:
            message = left.pop(0)
            if len(message.calls) < 2:
                out.append(message)
                continue
            for call in message.calls:
                out.append(msgspec.structs.replace(message, calls=(call,)))
                mine = next((m for m in left if m.role is Role.TOOL and m.call_id == call.call_id), None)
                if mine is not None:
                    left.remove(mine)
                    out.append(mine)
        self.messages = out
        self.messages.append(said(Role.USER, text))

    def do_teach(self, at: int, text: str) -> None:
        """An answer that the model never gave."""
        self._answer_calls()
        self.messages += [said(Role.USER, "2+2?"), said(Role.ASSISTANT, text or "4"), said(Role.USER, text)]

    def do_begin(self, at: int, text: str) -> Ending:
        self.do_say(at, "go on")
        self.messages.append(said(Role.ASSISTANT, text or "So"))
        return Ending.CONTINUE

    def do_continue(self, at: int, text: str) -> Ending:
        if self.messages and self.messages[-1].role is Role.ASSISTANT and not self.messages[-1].calls:
            return Ending.CONTINUE
        return self.do_begin(at, text)

    def do_system(self, at: int, text: str) -> None:
        self._answer_calls()
        self.messages.append(said(Role.SYSTEM, f"Few tokens are left. {text}"))
        self.messages.append(said(Role.USER, text))

    def do_tools(self, at: int, text: str) -> None:
        self.tools = () if self.tools else TOOLS
        self.do_say(at, text)
        self.is_plain = False

    def do_compact(self, at: int, text: str) -> None:
        last = next((message.text for message in reversed(self.messages) if message.role is Role.ASSISTANT), text)
        self.messages = [said(Role.USER, f"Summary: {last}")]
        self.is_plain = False

    def _answer_calls(self, text: str = "done", backwards: bool = False) -> bool:
        if not self.messages or not self.messages[-1].calls:
            return False
        results = [said(Role.TOOL, f"{text}{at}", call.call_id) for at, call in enumerate(self.messages[-1].calls)]
        self.messages += results[::-1] if backwards else results
        return True

    def _not_empty(self, text: str) -> None:
        if not self.messages:
            self.messages.append(said(Role.USER, text))

    # Turnstile and the engine

    def ask(self, ending: Ending, answer: tuple[list[tuple[str, object]], str]) -> Message | None:
        """One call from request to turn; None if the template does not take the conversation."""
        stop = (STOP_STRING,) if answer[1] == "stop string" else ()
        call = Call(
            "openai.chat", "m", tuple(self.messages), tools=self.tools, sampling=Sampling(stop=stop), ending=ending
        )
        head = head_of_call(self.served, call, call.messages)
        held = match(self.forest, head, call)
        self.last = call, held
        try:
            prompt = plan(self.served, call, held, NOW)
        except CallerError as refused:
            assert refused.code == "render_failed"
            assert refused.problem
            assert refused.remedy
            self.keep(CallFailed("r", "", NOW, FailReason.RENDER_FAILED, refused.problem))
            return None
        self.check(prompt, held.departure)
        draw = draw_for(call, Free(), self.served.stop_ids, 1, "r")
        planned = Planned(call, head, held, prompt, draw)
        call_id = f"c{self.forest.call_count}"
        self.keep(call_started(planned, self.forest, Flight("", "", call_id), CAPABILITIES, NOW))
        generation = self.generated(prompt, draw, *answer)
        verdict = verify(prompt, draw, generation, self.served.tokenizer)
        parser = Parser(self.setup(prompt, draw))
        for at in range(len(generation.ids_S)):
            parser.feed(Delta(generation.ids_S.slice(at, at + 1)))
        parsed = parser.finish(generation)
        choice = sampled_choice(0, Sampled(generation, verdict, parsed, ()), Drawn(generation, ()))
        self.keep(TurnCommitted("r", call_id, NOW, (choice,)))
        node = self.forest.node(NodeRef(call_id))
        assert node.held_T == prompt.ids_T + generation.ids_S
        return parsed.message

    def setup(self, prompt: Prompt, draw: Draw) -> ParserSetup:
        return ParserSetup(
            vocabulary=self.served.tokenizer,
            format=self.format,
            mint=self.mint,
            opening=prompt.opening,
            prefill=prompt.prefill,
            tools=self.tools,
            tool_choice=ToolMode.AUTO,
            stop=draw.stop,
            stop_ids=draw.stop_ids,
        )

    def mint(self) -> str:
        self.minted += 1
        return f"call{self.minted:05}"

    def generated(self, prompt: Prompt, draw: Draw, pieces: list[tuple[str, object]], ending: str) -> Generation:
        tokenizer = self.served.tokenizer
        ids: list[int] = []
        for kind, what in pieces:
            match kind, what:
                case "text", str():
                    ids += tokenizer.encode(what)
                case "id", int():
                    ids.append(what % tokenizer.size)
                case _:
                    ids.append(tokenizer.added[int(str(what)) % len(tokenizer.added)].id)
        stops = sorted(draw.stop_ids)
        ids = next((ids[:at] for at, token_id in enumerate(ids) if token_id in draw.stop_ids), ids)
        stop_string = ""
        if ending == "stop string":
            ids += tokenizer.encode(STOP_STRING)
            stop_string = STOP_STRING
        elif ending.endswith("stop") and stops:
            ids.append(stops[0 if ending == "stop" else -1])
        return Generation(
            ids_S=IdRun.of(ids),
            logprobs_S=LogprobRun.of([-0.5 - at / 64 for at in range(len(ids))]),
            finish=Finish.LENGTH if ending == "length" or (not stops and not stop_string) else Finish.STOP,
            engine_finish_reason=ending,
            usage=Usage(len(prompt), len(ids)),
            logprobs_mode=LogprobsMode.PROCESSED,
            logprobs_temperature=1.0,
            stop_string=stop_string,
            prompt_echo_T=prompt.ids_T,
        )

    # what holds

    def check(self, prompt: Prompt, departure: Root | Forked | None) -> None:
        """Held ids stand unchanged, or there is a reason; segments tile; what is put back is what was sampled."""
        history = prompt.history
        assert tiling_fault(prompt.added_segments, len(prompt.added_A)) is None
        assert len(prompt) > 0
        for segment in prompt.added_segments:
            assert segment.kind is not SegmentKind.SAMPLED
            if segment.kind is SegmentKind.REPLAYED:
                again = prompt.added_A.slice(segment.start, segment.end)
                assert any(node.choice.ids_S.startswith(again) for node in self.forest.nodes)
        if prompt.parent is None:
            assert not prompt.held_T
            assert isinstance(history, Root | Forked | Rerendered)
        else:
            node = self.forest.node(prompt.parent)
            assert node.held_T.startswith(prompt.held_T)
            taken_back = len(node.held_T) - len(prompt.held_T)
            assert taken_back == 0 if isinstance(history, Spliced) else taken_back in (0, 1)
            assert not node.is_incomplete
        match history:
            case Forked():
                assert history == departure or history.reason in OF_THE_SHAPE
                assert history.message_index is not None
            case Rerendered():
                assert departure is None
                assert history.detail
            case Root():
                assert history == departure
            case Spliced():
                assert departure is None
        if self.is_plain:
            assert not isinstance(history, Root)
            assert not isinstance(history, Forked) or history.reason in OF_THE_SHAPE, history

    def finish(self) -> None:
        """What is kept is the same after a restart, and exports without a fault."""
        again = Forest.of(self.records)
        assert again == self.forest
        if self.last is not None:
            call, _ = self.last
            head = head_of_call(self.served, call, call.messages)
            assert match(again, head, call) == match(self.forest, head, call)
        rollout = assemble(self.forest)
        assert [str(found) for found in validate(rollout) if found.code.startswith("E")] == []
        counts = rollout.token_counts
        assert counts.sampled == sum(len(node.choice.ids_S) for node in self.forest.nodes)


@pytest.fixture(scope="session")
def models(family_files: Callable[[str], ModelFiles]) -> Callable[[str], tuple[Served, AnswerFormat]]:
    """A family as it is served, and how its answers are read."""

    @cache
    def model(name: str) -> tuple[Served, AnswerFormat]:
        files = family_files(name)
        return serve(files, model=name), detect(files.tool_use_template or files.chat_template)

    return model


@pytest.mark.families
@pytest.mark.timeout(600)
@pytest.mark.parametrize("family_name", FAMILIES)
def test_whatever_engine_and_client_do_held_ids_stay_or_there_is_a_reason(
    models: Callable[[str], tuple[Served, AnswerFormat]], family_name: str
) -> None:
    served, answer_format = models(family_name)

    @settings(
        max_examples=CONVERSATIONS,
        deadline=None,
        derandomize="TURNSTILE_CONVERSATIONS" not in os.environ,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(STEPS, st.booleans())
    def converses(steps: list[tuple[str, int, str, tuple[list[tuple[str, object]], str]]], has_system: bool) -> None:
        rollout = Rollout(served, answer_format)
        rollout.keep(RolloutOpened("r", 1, NOW))
        rollout.messages += [said(Role.SYSTEM, "You are terse.")] if has_system else []
        for step in steps:
            rollout.step(*step)
        rollout.finish()

    converses()
