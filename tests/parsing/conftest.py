"""A small byte-level vocabulary, a reader that streams and checks, and a recogniser of grammars."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import msgspec
import pytest

from turnstile.conversation import ReplyDelta, TokenLogprob, ToolChoice, ToolMode, ToolSpec, Usage
from turnstile.generation import Delta, Finish, Generation, LogprobsMode, Opening
from turnstile.parsing.formats import AnswerFormat, by_name
from turnstile.parsing.parser import Parsed, Parser, ParserSetup
from turnstile.tokens import IdRun, LogprobRun, Vocabulary

SPECIAL = ("<|im_end|>", "<|im_start|>", "<|box_start|>", "<|python_tag|>", "<|eot_id|>")
PLAIN = ("<tool_call>", "</tool_call>", "<think>", "</think>", " ha", "\n\n", '{"name": "', '", "arguments": ')


class ByteVocabulary:
    """Ids 0-255 are bytes; then control tokens, then longer pieces. Satisfies `tokens.Vocabulary`."""

    def __init__(self) -> None:
        self._pieces = [*(bytes((byte,)) for byte in range(256)), *(text.encode() for text in (*SPECIAL, *PLAIN))]

    @property
    def size(self) -> int:
        return len(self._pieces)

    def token_bytes(self, token_id: int) -> bytes:
        return self._pieces[token_id]

    def is_special(self, token_id: int) -> bool:
        return 256 <= token_id < 256 + len(SPECIAL)

    def id_of(self, text: str) -> int:
        return 256 + (*SPECIAL, *PLAIN).index(text)

    def encode(self, text: str) -> IdRun:
        """Whole pieces where one fits, else bytes."""
        ids: list[int] = []
        rest = text
        while rest:
            piece = next((piece for piece in (*SPECIAL, *PLAIN) if rest.startswith(piece)), None)
            if piece:
                ids.append(self.id_of(piece))
                rest = rest[len(piece) :]
            else:
                ids.extend(rest[0].encode())
                rest = rest[1:]
        return IdRun.of(ids)

    def spell(self, text: str) -> IdRun:
        """Bytes only: markers letter by letter."""
        return IdRun.of(list(text.encode()))


@pytest.fixture(scope="session")
def vocabulary() -> ByteVocabulary:
    return ByteVocabulary()


def tool(name: str, parameters: object) -> ToolSpec:
    function = {"name": name, "parameters": parameters}
    return ToolSpec(name, msgspec.json.encode({"type": "function", "function": function}).decode())


LS = tool("ls", {"type": "object", "properties": {"p": {"type": "string"}}, "required": ["p"]})


class Asked(msgspec.Struct, frozen=True):
    """How an answer came about; the defaults are a Qwen3 answer that a stop token ended."""

    format: AnswerFormat = by_name("hermes")
    opening: Opening = Opening.ANSWER
    prefill: str = ""
    tools: tuple[ToolSpec, ...] = (LS,)
    tool_choice: ToolChoice = ToolMode.AUTO
    stop: tuple[str, ...] = ()
    finish: Finish = Finish.STOP
    stop_string: str = ""
    stop_ids: frozenset[int] = frozenset()


class Told(msgspec.Struct, frozen=True):
    """What a client was told, and the parser's verdict."""

    reasoning: str
    content: str
    calls: tuple[tuple[str, str], ...]
    """Name and arguments of each."""
    parsed: Parsed
    deltas: tuple[ReplyDelta, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(note.code.value for note in self.parsed.notes)


def generation(ids_S: IdRun, asked: Asked) -> Generation:
    return Generation(
        ids_S=ids_S,
        logprobs_S=LogprobRun.of([-0.5] * len(ids_S)),
        finish=asked.finish,
        engine_finish_reason=asked.finish.value,
        usage=Usage(1, len(ids_S)),
        logprobs_mode=LogprobsMode.RAW,
        logprobs_temperature=1.0,
        stop_string=asked.stop_string,
    )


def _added_up(deltas: Sequence[ReplyDelta]) -> tuple[str, str, tuple[tuple[str, str, str], ...]]:
    calls: list[list[str]] = []
    for piece in itertools.chain.from_iterable(delta.calls for delta in deltas):
        if piece.index == len(calls):
            assert piece.call_id and piece.name
            calls.append([piece.call_id, piece.name, ""])
        else:
            assert not piece.call_id and not piece.name
        calls[piece.index][2] += piece.arguments
    return (
        "".join(delta.reasoning for delta in deltas),
        "".join(delta.content for delta in deltas),
        tuple((call_id, name, arguments) for call_id, name, arguments in calls),
    )


def read_ids(vocabulary: Vocabulary, ids_S: IdRun, asked: Asked, cuts: Sequence[int] | None = None) -> Told:
    """Feed ids cut at the given places (default: one by one); what is streamed must add up to the message."""
    numbers = itertools.count(1)
    setup = ParserSetup(
        vocabulary=vocabulary,
        format=asked.format,
        mint=lambda: f"call-{next(numbers)}",
        opening=asked.opening,
        prefill=asked.prefill,
        tools=asked.tools,
        tool_choice=asked.tool_choice,
        stop=asked.stop,
        stop_ids=asked.stop_ids,
    )
    parser = Parser(setup)
    places = sorted({0, len(ids_S), *(range(len(ids_S)) if cuts is None else cuts)})
    deltas: list[ReplyDelta] = []
    for start, end in itertools.pairwise(places):
        run = ids_S.slice(start, end)
        logprobs = tuple(TokenLogprob(vocabulary.token_bytes(token_id), -0.5) for token_id in run)
        deltas.append(parser.feed(Delta(run, logprobs)))
    parsed = parser.finish(generation(ids_S, asked))
    deltas.append(parsed.flush)
    reasoning, content, calls = _added_up(deltas)
    message = parsed.message
    assert (message.reasoning, message.text) == (reasoning, content)
    assert tuple((call.call_id, call.name, call.arguments) for call in message.calls) == calls
    assert sum(len(delta.logprobs) for delta in deltas) == len(ids_S)
    return Told(reasoning, content, tuple(call[1:] for call in calls), parsed, tuple(deltas))


Read = Callable[..., Told]


@pytest.fixture
def read(vocabulary: ByteVocabulary) -> Read:
    """`read(text, **how it came about)`: one id at a time, and all at once; both must say the same."""

    def read(text: str, **asked: object) -> Told:
        how = msgspec.structs.replace(Asked(), **asked)
        ended = vocabulary.encode(text)
        if how.finish is Finish.STOP and not how.stop_string:
            ended += IdRun.of([vocabulary.id_of("<|im_end|>")])
        slow, fast = read_ids(vocabulary, ended, how), read_ids(vocabulary, ended, how, cuts=())
        assert msgspec.structs.replace(slow.parsed, flush=fast.parsed.flush) == fast.parsed
        return slow

    return read


@pytest.fixture
def read_run(vocabulary: ByteVocabulary) -> Read:
    """`read_run(ids, cuts=..., **how it came about)`: ids as they are, nothing added."""

    def read_run(ids_S: IdRun, cuts: Sequence[int] | None = None, **asked: object) -> Told:
        return read_ids(vocabulary, ids_S, msgspec.structs.replace(Asked(), **asked), cuts)

    return read_run


@pytest.fixture
def whole(vocabulary: ByteVocabulary) -> Callable[[IdRun], Parsed]:
    """Read a generation of which no delta ever came."""

    def whole(ids_S: IdRun) -> Parsed:
        parser = Parser(ParserSetup(vocabulary, by_name("hermes"), lambda: "call-1", tools=(LS,)))
        return parser.finish(generation(ids_S, Asked()))

    return whole
