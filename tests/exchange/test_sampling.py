"""One choice from one engine: held, versioned, and taken up again where the engine gives it up.

The engines are vLLM's and SGLang's adapters over servers that are only wire.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, nullcontext
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from turnstile.conversation import ReplyDelta, Usage
from turnstile.engines import SglangServer, VllmServer
from turnstile.engines.base import Engine
from turnstile.engines.pool import Seat
from turnstile.errors import EchoMismatch, EngineError
from turnstile.exchange.holding import Gate
from turnstile.exchange.policy_log import Announcement, Epoch, PolicyLog
from turnstile.exchange.sampling import Drawn, Source, continued_seed, drawn
from turnstile.generation import Delta, Draw, Emit, Finish, Generation, Prompt, Root
from turnstile.journal import PolicyRange
from turnstile.reasons import NoteCode, RootReason
from turnstile.tokens import NO_IDS, IdRun, LogprobRun, Segment, SegmentKind, join

END = 1


class Letters:
    """Ids 0 and 1 are control tokens, id 2 + b is the byte b."""

    rows = (b"<s>", b"</s>", *(bytes([byte]) for byte in range(256)))
    size = len(rows)

    def token_bytes(self, token_id: int) -> bytes:
        return self.rows[token_id]

    def is_special(self, token_id: int) -> bool:
        return token_id < 2


def ids(text: str) -> list[int]:
    """A text's letters; a full stop in the end is the end."""
    return [END if at == len(text) - 1 and byte == ord(".") else 2 + byte for at, byte in enumerate(text.encode())]


PROMPT = IdRun.of(ids("Once upon a time"))


class Bench:
    """An engine, what stands before it, and what was emitted."""

    def __init__(self, fake: Any, engine: Engine) -> None:
        self.fake = fake
        self.engine = engine
        self.policy = PolicyLog()
        self.gate = Gate(lambda: datetime.now(UTC))
        self.deltas: list[Delta] = []
        self.epochs: list[Epoch] = []

    async def sample(self, continuations: int, **draw: Any) -> Drawn:
        async def emit(delta: Delta) -> None:
            self.deltas.append(delta)

        seat = Seat("", lambda: nullcontext(self.engine))
        source = Source(seat, self.gate, self.policy, Letters(), continuations, self.epochs.append)
        return await drawn(source, _PROMPT, Draw(**({"stop_ids": frozenset({END}), "seed": 5} | draw)), emit)

    @property
    def emitted(self) -> list[int]:
        return join(delta.ids_S for delta in self.deltas).tolist()

    def sent(self) -> list[tuple[list[int], dict[str, Any]]]:
        """Prompt ids and sampling parameters of each request to vLLM."""
        return [(body["token_ids"], body["sampling_params"]) for _, body in self.fake.requests]


class _Head(msgspec.Struct, frozen=True):
    model: str = "fake"
    tools: tuple[str, ...] = ()


_PROMPT = Prompt(
    _Head(),  # type: ignore[arg-type]
    None,
    NO_IDS,
    PROMPT,
    (Segment(0, len(PROMPT), SegmentKind.PROMPT),),
    Root(RootReason.FIRST_CALL),
)


@pytest.fixture
async def benches(load_fake: Callable[[str], Any]) -> AsyncIterator[Callable[..., Any]]:
    async with AsyncExitStack() as stack:

        async def bench(kind: str, **changes: Any) -> Bench:
            module = load_fake(f"{kind}_fake")
            make, server = {"vllm": ("VllmFake", VllmServer), "sglang": ("SglangFake", SglangServer)}[kind]
            fake = getattr(module, make)(Letters.rows, special=frozenset({0, 1}), eos=frozenset({END}), **changes)
            url = await stack.enter_async_context(fake.serving())
            opened = await server.open(url)
            stack.push_async_callback(opened.close)
            fake.requests.clear()
            fake.Fault = module.Fault
            return Bench(fake, opened.speaking(Letters()))

        yield bench


@pytest.fixture
async def bench(benches: Callable[..., Any]) -> Bench:
    return await benches("vllm")


async def test_case_l3_an_answer_that_the_engine_gave_up_goes_on_behind_its_ids_with_the_budget_that_is_left(
    bench: Bench,
) -> None:
    first, second = ids(" there was a king"), ids(" was a queen.")
    bench.fake.script(first, second)
    bench.fake.faults.append(bench.fake.Fault.ABORTED)
    bench.fake.weight_version = "6"
    bench.fake.updates = {}
    made = await bench.sample(1, max_tokens=40, temperature=0.5)
    kept = first[:2] + second
    assert (made.generation.ids_S.tolist(), bench.emitted) == (kept, kept)
    assert made.generation.logprobs_S == LogprobRun.of([bench.fake.logprob(each, 0.5) for each in kept])
    assert made.generation.finish is Finish.STOP
    assert made.generation.usage == Usage(len(PROMPT), len(kept))
    assert [(call.ids, call.engine_finish_reason) for call in made.engine_calls] == [
        (2, "abort"),
        (len(second), "stop"),
    ]
    assert [(note.code, note.detail) for note in made.notes] == [(NoteCode.CONTINUED_AFTER_ABORT, "at id 2")]
    prompt = PROMPT.tolist()
    (ran, asked), (ran_on, asked_on) = bench.sent()
    assert (ran, ran_on) == (prompt, prompt + first[:2])
    assert (asked["max_tokens"], asked_on["max_tokens"]) == (40, 38)
    assert (asked["seed"], asked_on["seed"]) == (5, continued_seed(5, 1))
    assert asked_on["seed"] != 5


async def test_case_l3_each_request_has_the_version_under_which_it_was_sampled(bench: Bench) -> None:
    bench.fake.script(ids(" one two three"), ids(" four."))
    bench.fake.faults.append(bench.fake.Fault.ABORTED)
    bench.fake.weight_version = "6"
    bench.fake.updates = {1: "7"}
    made = await bench.sample(1)
    assert made.tiles == (PolicyRange(0, 1, 6, 6, "6"), PolicyRange(1, len(made.generation.ids_S), 7, 7, "7"))


async def test_case_l3_by_default_the_client_is_told_an_error_and_never_a_normal_finish(bench: Bench) -> None:
    bench.fake.script(ids(" one two three"))
    bench.fake.faults.append(bench.fake.Fault.ABORTED)
    with pytest.raises(EngineError) as failed:
        await bench.sample(0)
    assert (failed.value.code, failed.value.status) == ("engine_aborted", 503)
    assert bench.emitted == ids(" one two three")[:2]


async def test_case_l3_a_completion_is_taken_up_again_so_many_times_and_no_more(bench: Bench) -> None:
    for _ in range(3):
        bench.fake.script(ids(" one two three"))
        bench.fake.faults.append(bench.fake.Fault.ABORTED)
    with pytest.raises(EngineError, match="asked 3 times") as failed:
        await bench.sample(2)
    assert (failed.value.code, len(bench.fake.requests)) == ("engine_aborted", 3)


async def test_case_l3_given_up_at_the_last_token_of_its_budget_it_ended_by_its_length(bench: Bench) -> None:
    bench.fake.script(ids(" one two three"))
    bench.fake.faults.append(bench.fake.Fault.ABORTED)
    made = await bench.sample(5, max_tokens=2)
    assert (made.generation.finish, len(made.generation.ids_S), made.engine_calls) == (Finish.LENGTH, 2, ())


class Forgetful:
    """An engine that says no more than the last id of an answer that it gives up (public case L3, variant b)."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    async def generate(self, prompt: Prompt, draw: Draw, emit: Emit) -> Generation:
        deltas: list[Delta] = []

        async def keep(delta: Delta) -> None:
            deltas.append(delta)

        made = await self.engine.generate(prompt, draw, keep)
        if made.finish is Finish.ABORT:
            return msgspec.structs.replace(made, ids_S=made.ids_S.slice(1), logprobs_S=None, policy_spans=())
        for delta in deltas:
            await emit(delta)
        return made


async def test_case_l3_an_engine_that_does_not_say_all_that_it_sampled_begins_anew_and_what_it_said_is_kept(
    bench: Bench,
) -> None:
    bench.engine = Forgetful(bench.engine)  # type: ignore[assignment]
    bench.fake.script(ids("xyz"), ids("again."))
    bench.fake.faults.append(bench.fake.Fault.ABORTED)
    made = await bench.sample(1, max_tokens=40)
    assert made.generation.ids_S.tolist() == bench.emitted == ids("again.")
    first, second = made.engine_calls
    assert (first.ids, first.discarded_S.tolist(), second.ids) == (0, ids("y"), len(ids("again.")))
    assert [(note.code, note.detail) for note in made.notes] == [(NoteCode.RESTARTED_AFTER_ABORT, "1 of 2 ids")]
    (ran, asked), (ran_again, asked_again) = bench.sent()
    assert (ran, asked["max_tokens"]) == (ran_again, asked_again["max_tokens"]) == (PROMPT.tolist(), 40)


async def test_case_l3_on_sglang_an_update_in_mid_answer_is_one_answer_of_two_requests(
    benches: Callable[..., Any],
) -> None:
    bench = await benches("sglang")
    bench.fake.weight_version = "6"
    bench.fake.script(ids("one two"), ids("!."))
    bench.fake.faults.append(bench.fake.Fault.UPDATE)
    made = await bench.sample(1)
    assert made.generation.ids_S.tolist() == bench.emitted == ids("one!.")
    assert [call.ids for call in made.engine_calls] == [3, 2]
    assert made.tiles == (PolicyRange(0, 5, 6, 6, "6"),)


async def test_case_l3_a_request_that_sglang_gives_up_in_its_queue_goes_on_behind_what_it_had_said(
    benches: Callable[..., Any],
) -> None:
    bench = await benches("sglang")
    bench.fake.script(ids("one two"), ids("!."))
    bench.fake.faults.append(bench.fake.Fault.UPDATE_IN_QUEUE)
    made = await bench.sample(1)
    assert made.generation.ids_S.tolist() == bench.emitted == ids("on!.")


async def test_case_l3_a_stop_string_that_begins_in_one_request_and_ends_in_the_next_ends_the_answer(
    bench: Bench,
) -> None:
    bench.fake.script(ids("ST"), ids("OP and more."))
    bench.fake.faults.append(bench.fake.Fault.ABORTED)
    made = await bench.sample(1, stop=("TOP",))
    assert made.generation.ids_S.tolist() == bench.emitted == ids("STOP")
    assert (made.generation.finish, made.generation.stop_string) == (Finish.STOP, "TOP")
    assert made.generation.logprobs_S == LogprobRun.of([bench.fake.logprob(each) for each in ids("STOP")])
    assert made.generation.usage.completion_tokens == 4
    assert (made.notes[-1].code, made.notes[-1].detail) == (NoteCode.TRIMMED_PAST_STOP, "10 tokens")


async def test_a_stop_string_inside_a_later_request_ends_it_as_the_engine_says(bench: Bench) -> None:
    bench.fake.script(ids(" one two three"), ids(" four END five."))
    bench.fake.faults.append(bench.fake.Fault.ABORTED)
    made = await bench.sample(1, stop=("END",))
    assert (made.generation.finish, made.generation.stop_string) == (Finish.STOP, "END")
    assert made.generation.ids_S.tolist() == bench.emitted == ids(" o four END")


async def test_what_each_request_ran_is_compared_with_what_it_was_given(bench: Bench) -> None:
    bench.fake.script(ids(" one two three"), ids(" four."))
    bench.fake.faults.extend([bench.fake.Fault.ABORTED, bench.fake.Fault.OTHER_PROMPT])
    with pytest.raises(EchoMismatch):
        await bench.sample(1)


async def test_what_the_engines_own_parser_says_comes_through_also_without_ids(bench: Bench) -> None:
    class Reading:
        async def generate(self, prompt: Prompt, draw: Draw, emit: Emit) -> Generation:
            made = await engine.generate(prompt, draw, emit)
            await emit(Delta(NO_IDS, said=ReplyDelta(content="held back")))
            return made

    engine, bench.engine = bench.engine, Reading()  # type: ignore[assignment]
    bench.fake.script(ids("hi."))
    await bench.sample(0)
    assert bench.deltas[-1].said == ReplyDelta(content="held back")


async def test_a_completion_of_one_request_is_as_the_engine_gave_it(bench: Bench) -> None:
    answer = ids(" there was.")
    bench.fake.script(answer)
    made = await bench.sample(3)
    assert (made.generation.ids_S.tolist(), made.notes, made.engine_calls) == (answer, (), ())
    assert (bench.emitted, len(bench.fake.requests)) == (answer, 1)


async def test_a_held_request_goes_out_after_the_release_under_the_version_that_was_announced_with_it(
    benches: Callable[..., Any],
) -> None:
    bench = await benches("vllm", scale_out=False, dev_mode=False)
    bench.fake.script(ids(" there was."))
    bench.policy.take(bench.policy.after(Announcement(6)))
    bench.gate.hold(("",), datetime.now(UTC) + timedelta(seconds=60))
    async with asyncio.TaskGroup() as tasks:
        sampling = tasks.create_task(bench.sample(0))
        while not bench.gate.waiting(""):  # noqa: ASYNC110 - it is the gate that says so
            await asyncio.sleep(0.005)
        assert (bench.fake.requests, bench.epochs) == ([], [])
        bench.policy.take(bench.policy.after(Announcement(7)))
        bench.gate.release(("",))
    made = await sampling
    assert made.tiles == (PolicyRange(0, len(made.generation.ids_S), 7, 7),)
    assert [note.code for note in made.notes] == [NoteCode.HELD_FOR_POLICY]
    assert [epoch.announced() for epoch in bench.epochs] == [(7, 7)]


async def test_an_answer_that_is_given_up_for_an_update_waits_for_its_end_before_it_goes_on(bench: Bench) -> None:
    bench.fake.script(ids(" one two three"), ids(" four."))
    bench.fake.faults.append(bench.fake.Fault.ABORTED)
    bench.fake.held = True
    async with asyncio.TaskGroup() as tasks:
        sampling = tasks.create_task(bench.sample(1))
        while not bench.fake.requests:  # noqa: ASYNC110 - it is the engine that says so
            await asyncio.sleep(0.005)
        bench.gate.hold(("",), datetime.now(UTC) + timedelta(seconds=60))
        assert bench.gate.running("") == 1
        bench.fake.held = False
        while not bench.gate.waiting(""):  # noqa: ASYNC110 - it is the gate that says so
            await asyncio.sleep(0.005)
        assert (bench.gate.running(""), len(bench.fake.requests)) == (0, 1)
        bench.gate.release(("",))
    assert len((await sampling).engine_calls) == 2


async def test_where_answers_have_no_spans_the_engine_is_asked_before_and_after(benches: Callable[..., Any]) -> None:
    bench = await benches("vllm", scale_out=False)
    bench.fake.script(ids(" one two three."))
    bench.fake.weight_version = "6"
    bench.fake.updates = {2: "7"}
    made = await bench.sample(0)
    assert made.tiles == (PolicyRange(0, len(made.generation.ids_S), 6, 7, "6..7"),)


def test_further_requests_have_dice_of_their_own_that_anyone_can_work_out() -> None:
    seeds = [continued_seed(5, request) for request in range(4)]
    assert seeds[0] == 5
    assert len(set(seeds)) == 4
    # The first eight bytes of sha256("5:1") modulo 2**31, by coreutils' sha256sum.
    assert seeds[1] == int("a5886f21fcb5f028", 16) % 2**31
    assert continued_seed(None, 3) is None
