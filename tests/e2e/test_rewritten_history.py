"""Clients that rewrite what was said: the ids of earlier answers go back in, and each is still trained once.

Real templates and tokenizers, the real match, plan, records, forest and export; what is sampled is made up, and
spelled as no tokenizer would spell it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from turnstile.conversation import Call, Message, ReplyFinish, Role, Text, ToolCall, ToolSpec, Usage
from turnstile.engines.base import Capabilities
from turnstile.exchange.inflight import Flight
from turnstile.exchange.records import Planned, call_started
from turnstile.generation import Draw, Finish, Forked, LogprobsMode, NodeRef, Prompt, Root, Spliced
from turnstile.history.forest import Forest
from turnstile.history.match import match
from turnstile.journal import AnswerUndelivered, Record, RolloutOpened, SampledChoice, TurnCommitted, decode, encode
from turnstile.reasons import DiscardReason, ForkReason, NoteCode
from turnstile.templates.facts import Served, serve
from turnstile.templates.files import ModelFiles
from turnstile.templates.plan import head_of_call, plan
from turnstile.tokens import IdRun, LogprobRun, SegmentKind
from turnstile.trajectory.assemble import assemble
from turnstile.trajectory.files import read, write
from turnstile.trajectory.format import Rollout
from turnstile.trajectory.validate import validate

pytestmark = pytest.mark.families

AT = datetime(2026, 12, 1, tzinfo=UTC)
ENGINE = Capabilities("llamacpp", "b1", ("m",), None, 1, None, "", frozenset(), frozenset(), 5, "count")
SHELL = ToolSpec(
    "shell",
    '{"type":"function","function":{"name":"shell","description":"Run","parameters":{"type":"object",'
    '"properties":{"cmd":{"type":"string","description":"What"}}}}}',
)
LONG = "one.txt two.txt three.txt " * 6
TEMPLATES = ("qwen3", "llama3.1", "smollm2")


def said(role: Role, text: str, call_id: str = "") -> Message:
    return Message(role, (Text(text),), call_id=call_id)


class Agent:
    """One client of one rollout, and the model that answers it."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.records: list[Record] = [RolloutOpened("r", 1, AT)]
        self.forest = Forest.of(self.records)
        self.sampled: dict[NodeRef, IdRun] = {}
        self.messages: list[Message] = [said(Role.SYSTEM, "Be terse."), said(Role.USER, "What is here?")]
        self.tools = () if served.facts.drops_calls else (SHELL,)
        self.stop = served.tokenizer.encode(served.facts.content_close.strip())[-1]
        self._numbers = itertools.count()

    def plan(self) -> Prompt:
        return self._planned().prompt

    def _planned(self) -> Planned:
        call = Call("openai.chat", "m", tuple(self.messages), tools=self.tools)
        head = head_of_call(self.served, call, call.messages)
        held = match(self.forest, head, call)
        prompt = plan(self.served, call, held, AT)
        return Planned(call, prompt.head, held, prompt, Draw(stop_ids=self.served.stop_ids))

    def answer(self, text: str = "", command: str = "") -> Prompt:
        """Ask, sample, commit; the answer and, of a command, its result go into the history."""
        planned = self._planned()
        number = next(self._numbers)
        started = call_started(planned, self.forest, Flight("d", "", f"c{number}"), ENGINE, AT + timedelta(number, 0))
        self.keep(started)
        calls = (ToolCall(f"callid{number:03d}", "shell", f'{{"cmd":"{command}"}}'),) if command and self.tools else ()
        words = text or ("" if calls else f"$ {command}")
        message = Message(Role.ASSISTANT, (Text(words),) if words else (), calls=calls)
        ids_S = self._spelled(words + command)
        self.keep(
            TurnCommitted(
                "r", started.call_id, AT + timedelta(number, 1), (self._choice(message, ids_S, planned.prompt),)
            )
        )
        self.sampled[NodeRef(started.call_id)] = ids_S
        self.messages.append(message)
        if command:
            self.messages.append(said(Role.TOOL, f"{number}: {LONG}", f"callid{number:03d}"))
        return planned.prompt

    def user(self, text: str) -> Agent:
        self.messages.append(said(Role.USER, text))
        return self

    def _spelled(self, text: str) -> IdRun:
        """One token a character: the tokenizer itself would take longer pieces."""
        letters = [token_id for letter in text for token_id in self.served.tokenizer.encode(letter)]
        return IdRun.of([*letters, self.stop])

    def _choice(self, message: Message, ids_S: IdRun, prompt: Prompt) -> SampledChoice:
        return SampledChoice(
            choice=0,
            ids_S=ids_S,
            logprobs_S=LogprobRun.of([-0.5] * len(ids_S)),
            message=message,
            reply_finish=ReplyFinish.STOP,
            finish=Finish.STOP,
            engine_finish_reason="stop",
            usage=Usage(len(prompt), len(ids_S)),
            logprobs_mode=LogprobsMode.RAW,
            logprobs_temperature=1.0,
        )

    def keep(self, record: Record) -> None:
        self.records.append(decode(encode(record)))
        self.forest.apply(record)

    def trajectory(self) -> Rollout:
        """The export of what the journal says, after a restart; it keeps every rule, and every sampled token once."""
        rollout = assemble(Forest.of(self.records))
        assert [str(violation) for violation in validate(rollout) if violation.code.startswith("E")] == []
        sampled = sum(len(ids) for ids in self.sampled.values())
        assert (rollout.token_counts.sampled, rollout.token_counts.trainable) == (sampled, sampled)
        return rollout


@pytest.fixture(scope="session")
def served(family_files: Callable[[str], ModelFiles]) -> Callable[[str], Served]:
    return cache(lambda name: serve(family_files(name), model="m"))


@pytest.fixture(params=TEMPLATES)
def agent(request: pytest.FixtureRequest, served: Callable[[str], Served]) -> Agent:
    """A rollout of four turns: two commands, what came of them, a user's next question and its answer."""
    agent = Agent(served(request.param))
    agent.answer(command="ls")
    agent.answer(command="cat one.txt")
    agent.answer("Three files.")
    agent.user("Which is the longest?")
    return agent


def put_back(prompt: Prompt) -> list[tuple[NodeRef, IdRun]]:
    """Whose ids stand in a prompt under another prefix, and which."""
    runs = [
        prompt.added_A.slice(segment.start, segment.end)
        for segment in prompt.added_segments
        if segment.kind is SegmentKind.REPLAYED
    ]
    return list(zip(prompt.replayed, runs, strict=True))


def codes(prompt: Prompt) -> list[NoteCode]:
    return [note.code for note in prompt.notes]


def shortened(agent: Agent, at: int) -> None:
    agent.messages[at] = msgspec.structs.replace(agent.messages[at], parts=(Text("[cut]"),))


def refs(*numbers: int) -> list[NodeRef]:
    return [NodeRef(f"c{number}") for number in numbers]


def expected(agent: Agent, *numbers: int) -> list[tuple[NodeRef, IdRun]]:
    return [(ref, agent.sampled[ref]) for ref in refs(*numbers)]


def test_behind_a_shortened_result_every_later_answer_keeps_its_ids(agent: Agent) -> None:
    shortened(agent, 3)
    prompt = agent.answer("The first.")
    assert prompt.parent == NodeRef("c0")
    assert isinstance(prompt.history, Forked)
    assert (prompt.history.reason, prompt.history.message_index) == (ForkReason.MESSAGE_EDITED, 3)
    assert put_back(prompt) == expected(agent, 1, 2)
    assert codes(prompt) == [NoteCode.REPLAYED_HISTORY]
    assert prompt.notes[0].detail == "message 4, 6"


def test_what_stands_between_the_answers_is_what_stands_there_if_the_conversation_only_grows(agent: Agent) -> None:
    """The same words, once as a history that was rewritten and once as one that grew."""
    shortened(agent, 3)
    rewritten = agent.plan()
    grown = Agent(agent.served)
    grown.answer(command="ls")
    shortened(grown, 3)
    grown.answer(command="cat one.txt")
    grown.messages[5] = agent.messages[5]
    grown.answer("Three files.")
    grown.user("Which is the longest?")
    assert rewritten.ids_T == grown.plan().ids_T


def test_next_turns_are_spliced_on_the_new_row(agent: Agent) -> None:
    shortened(agent, 3)
    first = agent.answer(command="wc one.txt")
    second = agent.answer("The first.")
    assert isinstance(second.history, Spliced)
    assert second.ids_T.startswith(first.ids_T + agent.sampled[NodeRef("c3")])
    assert put_back(second) == []


def test_two_rewritings_one_after_the_other_put_the_same_ids_back_twice(agent: Agent) -> None:
    shortened(agent, 3)
    agent.answer(command="wc one.txt")
    shortened(agent, 5)
    prompt = agent.answer("The first.")
    assert prompt.parent == NodeRef("c0")
    assert put_back(prompt) == expected(agent, 1, 2, 3)
    rollout = agent.trajectory()
    assert [part.call for part in rollout.sequences[-1].segments if part.kind == "replayed"] == [1, 2, 3]


def test_an_old_exchange_that_was_dropped_starts_a_new_row_with_the_later_answers(agent: Agent) -> None:
    del agent.messages[2:4]
    prompt = agent.answer("The first.")
    assert prompt.parent is None
    assert put_back(prompt) == expected(agent, 1, 2)
    assert prompt.added_segments[0].kind is SegmentKind.PROMPT


def test_case_h2_a_compaction_that_keeps_later_turns_keeps_their_ids(agent: Agent) -> None:
    agent.answer("The first.")
    agent.user("Thanks.")
    agent.messages[1:4] = [said(Role.USER, "Summary: the agent listed the files.")]
    prompt = agent.answer("Welcome.")
    assert prompt.parent is None
    assert put_back(prompt) == expected(agent, 1, 2, 3)
    agent.user("Bye.").answer("Bye.")
    rollout = agent.trajectory()
    assert [call.history for call in rollout.calls][-2:] == ["forked", "spliced"]
    assert [[part.kind for part in each.segments].count("sampled") for each in rollout.sequences] == [4, 2]


def test_case_h2_an_answer_left_out_in_the_middle_leaves_the_others_their_ids(agent: Agent) -> None:
    agent.answer("The first.")
    del agent.messages[6:8]
    agent.user("Go on.")
    prompt = agent.answer("Gone on.")
    assert (prompt.parent, put_back(prompt)) == (NodeRef("c1"), expected(agent, 3))


def test_a_changed_answer_is_text_and_the_unchanged_one_behind_it_is_not(agent: Agent) -> None:
    agent.messages[4] = msgspec.structs.replace(
        agent.messages[4], parts=(Text("I changed this."),), calls=agent.messages[4].calls
    )
    prompt = agent.answer("The first.")
    assert (prompt.parent, put_back(prompt)) == (NodeRef("c0"), expected(agent, 2))
    assert codes(prompt)[-1] is NoteCode.REPLAYED_HISTORY


def test_answers_of_equal_words_go_back_in_the_order_in_which_they_were_given(agent: Agent) -> None:
    agent.answer("Done.")
    agent.user("Again.").answer("Done.")
    agent.user("And again.")
    agent.messages[0:2] = [said(Role.SYSTEM, "Be terse."), said(Role.USER, "What was here?")]
    assert put_back(agent.plan()) == expected(agent, 0, 1, 2, 3, 4)


def test_a_stop_that_may_not_stand_in_history_is_not_put_back(served: Callable[[str], Served]) -> None:
    """Llama stops with `<|eom_id|>` or `<|eot_id|>`; its template writes the second."""
    agent = Agent(served("llama3.1"))
    agent.stop = 128008
    agent.answer(command="ls")
    agent.answer("Three files.")
    agent.user("Which?")
    agent.messages[1] = said(Role.USER, "What was here?")
    prompt = agent.answer("The first.")
    whole = [agent.sampled[ref] for ref in refs(0, 1)]
    assert [ids for _, ids in put_back(prompt)] == [ids.slice(0, len(ids) - 1) for ids in whole]
    agent.trajectory()


def test_the_export_names_whose_ids_stand_again_and_trains_them_once(agent: Agent) -> None:
    shortened(agent, 3)
    agent.answer("The first.")
    rollout = agent.trajectory()
    first, second = rollout.sequences
    assert [part.call for part in first.segments if part.kind == "sampled"] == [0, 1, 2]
    replayed = [part for part in second.segments if part.kind == "replayed"]
    assert [(part.call, part.trainable, part.mask_reason) for part in replayed] == [(1, False, None), (2, False, None)]
    assert [second.token_ids.slice(part.start, part.end) for part in replayed] == [
        agent.sampled[ref] for ref in refs(1, 2)
    ]
    assert [(part.call, part.trainable) for part in second.segments if part.kind == "sampled"] == [
        (0, False),
        (3, True),
    ]


@pytest.mark.parametrize("name", ["rollouts.jsonl", "rollouts.parquet"])
def test_a_file_gives_back_what_was_replayed(agent: Agent, tmp_path: Path, name: str) -> None:
    del agent.messages[2:4]
    agent.answer("The first.")
    rollout = agent.trajectory()
    write(tmp_path / name, [rollout])
    assert list(read(tmp_path / name)) == [rollout]


def test_a_client_that_brings_an_undelivered_answer_back_had_it(agent: Agent) -> None:
    """What is replayed was consumed: it is trained, not discarded."""
    agent.keep(AnswerUndelivered("r", "c2", AT, DiscardReason.CLIENT_GONE))
    shortened(agent, 3)
    agent.answer("The first.")
    assert agent.trajectory().token_counts.discarded == {}


WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12)


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
@pytest.mark.parametrize("name", TEMPLATES)
def test_whatever_a_client_rewrites_replayed_ids_are_those_of_the_answer_and_each_is_trained_once(
    served: Callable[[str], Served], name: str, data: st.DataObject
) -> None:
    agent = Agent(served(name))
    for _ in range(data.draw(st.integers(1, 3), label="rows")):
        for _ in range(data.draw(st.integers(1, 3), label="turns")):
            if data.draw(st.booleans(), label="tool"):
                agent.answer(command=data.draw(st.sampled_from(["ls", "cat a", "pwd"]), label="command"))
            else:
                agent.answer(data.draw(st.sampled_from(["Done.", "Two files.", "No."]), label="words"))
                agent.user(data.draw(WORDS, label="said"))
        _edit(data, agent)
    prompt = agent.answer("The end.")
    for ref, ids in put_back(prompt):
        assert ids == agent.sampled[ref]
    agent.trajectory()


def _edit(data: st.DataObject, agent: Agent) -> None:
    """Change or drop what an agent may drop: the text of a result or a user, a whole exchange."""
    changeable = [at for at, message in enumerate(agent.messages) if message.role in (Role.TOOL, Role.USER)]
    at = data.draw(st.sampled_from(changeable), label="at")
    if agent.messages[at].role is Role.TOOL and data.draw(st.booleans(), label="drop"):
        del agent.messages[at - 1 : at + 1]
    else:
        changed = data.draw(WORDS, label="now")
        agent.messages[at] = msgspec.structs.replace(agent.messages[at], parts=(Text(changed),))


def test_another_system_text_is_another_head_whose_answers_are_text(agent: Agent) -> None:
    agent.messages[0] = said(Role.SYSTEM, "Be verbose.")
    prompt = agent.plan()
    assert (isinstance(prompt.history, Root), put_back(prompt)) == (True, [])
