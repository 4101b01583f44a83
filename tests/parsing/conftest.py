"""A small byte-level vocabulary, a reader that streams and checks, and a recogniser of grammars."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

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
        deltas += parser.feed(Delta(run, logprobs))
    parsed = parser.finish(generation(ids_S, asked))
    deltas += parsed.flush
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
def read_with() -> Read:
    """`read_with(vocabulary, ids, **how it came about)`: one id at a time, with any vocabulary."""

    def read_with(vocabulary: Vocabulary, ids_S: IdRun, **asked: object) -> Told:
        return read_ids(vocabulary, ids_S, msgspec.structs.replace(Asked(), **asked))

    return read_with


@pytest.fixture
def whole(vocabulary: ByteVocabulary) -> Callable[[IdRun], Parsed]:
    """Read a generation of which no delta ever came."""

    def whole(ids_S: IdRun) -> Parsed:
        parser = Parser(ParserSetup(vocabulary, by_name("hermes"), lambda: "call-1", tools=(LS,)))
        return parser.finish(generation(ids_S, Asked()))

    return whole


_TOKEN = re.compile(
    r"""\s+|(?P<name>[a-zA-Z0-9-]+)|"(?P<literal>(?:[^"\\]|\\.)*)"|\[(?P<klass>(?:[^\]\\]|\\.)*)\]"""
    r"""|\{(?P<least>[0-9]+)(?P<comma>,?)(?P<most>[0-9]*)\}|(?P<sign>[()|*+?])""",
    re.DOTALL,
)
_ESCAPED = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))", re.DOTALL)
_SHORT = {"n": "\n", "r": "\r", "t": "\t"}


def _unescape(text: str) -> list[str]:
    """Characters, escapes resolved; an escaped one is never a range's dash."""
    out: list[str] = []
    at = 0
    while at < len(text):
        found = _ESCAPED.match(text, at)
        if found:
            number = found.group(1) or found.group(2) or found.group(3)
            out.append("\0" + (chr(int(number, 16)) if number else _SHORT.get(found.group(4), found.group(4))))
            at = found.end()
        else:
            out.append(text[at])
            at += 1
    return out


def _klass(text: str) -> Any:
    chars = _unescape(text.removeprefix("^"))
    ranges: list[tuple[str, str]] = []
    while chars:
        low = chars.pop(0)[-1]
        if len(chars) > 1 and chars[0] == "-":
            chars.pop(0)
            ranges.append((low, chars.pop(0)[-1]))
        else:
            ranges.append((low, low))
    return ("class", text.startswith("^"), tuple(ranges))


class Machine:
    """A grammar that accepts texts or not, as llama.cpp runs it: a set of stacks, advanced character by character."""

    def __init__(self, gbnf: str) -> None:
        self._rules = {}
        for line in gbnf.splitlines():
            name, _, body = line.partition(" ::= ")
            assert name not in self._rules, f"{name} is defined twice"
            self._rules[name] = self._parse(body)

    def accepts(self, text: str) -> bool:
        states = self._expand({(("ref", "root"), None)})
        for char in text:
            states = self._expand({step for state in states if (step := self._advance(state, char)) is not False})
            if not states:
                return False
        return None in states

    def _parse(self, body: str) -> Any:
        stack: list[list[list[Any]]] = [[[]]]
        at = 0
        while at < len(body):
            found = _TOKEN.match(body, at)
            assert found, f"no grammar: {body[at : at + 40]!r}"
            at = found.end()
            self._take(found, stack)
        assert len(stack) == 1
        return ("alt", tuple(("seq", tuple(each)) for each in stack[0]))

    def _take(self, found: re.Match[str], stack: list[list[list[Any]]]) -> None:
        here = stack[-1][-1]
        if found["name"]:
            here.append(("ref", found["name"]))
        elif found["literal"] is not None:
            here.append(("literal", "".join(char[-1] for char in _unescape(found["literal"]))))
        elif found["klass"] is not None:
            here.append(_klass(found["klass"]))
        elif found["least"]:
            least = int(found["least"])
            most = int(found["most"]) if found["most"] else None if found["comma"] else least
            here.append(("repeat", here.pop(), least, most))
        elif found["sign"] == "(":
            stack.append([[]])
        elif found["sign"] == ")":
            group = ("alt", tuple(("seq", tuple(each)) for each in stack.pop()))
            stack[-1][-1].append(group)
        elif found["sign"] == "|":
            stack[-1].append([])
        elif found["sign"]:
            least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}[found["sign"]]
            here.append(("repeat", here.pop(), least, most))

    def _expand(self, states: set[Any]) -> set[Any]:
        """Only states that wait for a character, and None where the text may end."""
        work, seen, out = list(states), set(), set()
        while work:
            state = work.pop()
            if state in seen:
                continue
            seen.add(state)
            if state is None or state[0][0] == "class" or (state[0][0] == "literal" and state[0][1]):
                out.add(state)
            else:
                work.extend(self._unfold(*state))
        return out

    def _unfold(self, node: Any, rest: Any) -> list[Any]:
        match node:
            case ("literal", ""):
                return [rest]
            case ("ref", name):
                return [(self._rules[name], rest)]
            case ("alt", choices):
                return [(choice, rest) for choice in choices]
            case ("seq", nodes):
                for each in reversed(nodes):
                    rest = (each, rest)
                return [rest]
            case ("repeat", each, least, most):
                more = ("repeat", each, max(least - 1, 0), None if most is None else most - 1)
                once = [] if most == 0 else [(each, (more, rest))]
                return once if least else [rest, *once]
        raise AssertionError(node)

    @staticmethod
    def _advance(state: Any, char: str) -> Any:
        if state is None:
            return False
        node, rest = state
        if node[0] == "literal":
            return (("literal", node[1][1:]), rest) if node[1][0] == char else False
        inside = any(low <= char <= high for low, high in node[2])
        return rest if inside != node[1] else False


@pytest.fixture(scope="session")
def machine() -> type[Machine]:
    """`machine(gbnf).accepts(text)`."""
    return Machine


@pytest.fixture(scope="session")
def ls() -> ToolSpec:
    """A tool with one string."""
    return LS


@pytest.fixture(scope="session")
def cat() -> ToolSpec:
    """A tool with every kind of parameter."""
    properties = {
        "n": {"type": "integer"},
        "text": {"type": "string"},
        "mode": {"enum": ["r", "w"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "limit": {"type": ["number", "null"]},
    }
    return tool("cat", {"type": "object", "properties": properties, "required": ["n"]})
