"""Building grammars in GBNF, the dialect of llama.cpp (`grammars/README.md` in its repository)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import final

from turnstile.errors import CallerError

_UNNAMEABLE = re.compile(r"[^a-zA-Z0-9]+")
MAX_CHARACTERS = 1 << 20
"""Of one grammar. An engine keeps several times as much of each."""
MAX_STEPS = 20_000
"""Of writing one: places of schemas, and what is listed in them. A small schema may ask for any number."""
_CHARACTERS_PER_STEP = 16
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t", "]": "\\]", "^": "\\^", "-": "\\-"}


def literal(text: str) -> str:
    """An expression for exactly this text; the empty text is the empty sequence."""
    return '"' + "".join(_in_quotes(char) for char in text) + '"'


def _in_quotes(char: str) -> str:
    if char in '\\"\n\r\t':
        return _ESCAPES[char]
    return char if char.isprintable() else _by_number(char)


def _in_class(char: str) -> str:
    if char in _ESCAPES and char != '"':
        return _ESCAPES[char]
    return char if char.isprintable() else _by_number(char)


def _by_number(char: str) -> str:
    point = ord(char)
    if point < 0x100:
        return f"\\x{point:02X}"
    return f"\\u{point:04X}" if point < 0x10000 else f"\\U{point:08X}"


def either(choices: Sequence[str]) -> str:
    """An expression for any one of these expressions; there must be one."""
    return choices[0] if len(choices) == 1 else "(" + " | ".join(choices) + ")"


@final
class Rules:
    """The rules of one grammar, each with a name of its own."""

    def __init__(self) -> None:
        self._bodies: dict[str, str] = {}
        self._shared: dict[str, str] = {}
        self._left_out: set[str] = set()
        self._next: dict[str, int] = {}
        self._characters = 0
        self._steps = 0

    def reserve(self, hint: str) -> str:
        """A fresh rule name, to be given a body with `define`: for rules that refer to themselves."""
        stem = _UNNAMEABLE.sub("-", hint).strip("-").lower() or "rule"
        name, count = stem, self._next.get(stem, 2)
        while name in self._bodies or name == "root":
            name, count = f"{stem}-{count}", count + 1
        self._next[stem] = count
        self._bodies[name] = '""'
        return name

    def define(self, name: str, body: str) -> str:
        """Give a reserved name its body; returns the name.

        Raises: CallerError `grammar_too_large` if the grammar becomes longer than `MAX_CHARACTERS`.
        """
        self._characters += len(body)
        if self._characters > MAX_CHARACTERS:
            raise _too_large()
        self._bodies[name] = body
        return name

    def read(self, text: str) -> None:
        """Count a document that rules are made from. Raises: CallerError `grammar_too_large` as `spend` does."""
        self.spend(len(text) // _CHARACTERS_PER_STEP)

    def spend(self, steps: int) -> None:
        """Count work that these rules take. Raises: CallerError `grammar_too_large` beyond `MAX_STEPS`."""
        self._steps += steps
        if self._steps > MAX_STEPS:
            raise _too_large()

    def add(self, hint: str, body: str) -> str:
        """A new rule; returns its name."""
        return self.define(self.reserve(hint), body)

    def share(self, body: str, hint: str) -> str:
        """A rule that is wanted in many places under one name; returns the name."""
        if body not in self._shared:
            self._shared[body] = self.add(hint, body)
        return self._shared[body]

    def leave_out(self, keywords: Iterable[str]) -> None:
        """Remember what was asked for and these rules let pass."""
        self._left_out.update(keywords)

    @property
    def left_out(self) -> tuple[str, ...]:
        """What was asked for and these rules let pass, each once, sorted."""
        return tuple(sorted(self._left_out))

    def through(self, end: str, hint: str) -> str:
        """A rule for any text up to and including the first occurrence of `end`; returns its name.

        GBNF has no complement, so this is the automaton of Knuth, Morris and Pratt, a rule a state. Each rule ends
        in its only reference, which llama.cpp runs in constant stack.
        """
        key = f"through {end}"
        if key not in self._shared:
            states = [self.reserve(f"{hint}-{at}") for at in range(len(end))]
            for at, state in enumerate(states):
                self.define(state, _moves(end, at, states))
            self._shared[key] = states[0]
        return self._shared[key]

    def render(self, root: str) -> str:
        """The grammar's text, `root` being the expression for a whole answer."""
        lines = [f"root ::= {root}", *(f"{name} ::= {body}" for name, body in self._bodies.items())]
        return "\n".join(lines) + "\n"


def _too_large() -> CallerError:
    return CallerError(
        "A grammar for what the request asks for would be too large",
        "Send fewer tools or smaller schemas, or ask for neither JSON nor a call",
        code="grammar_too_large",
    )


def _moves(end: str, seen: int, states: Sequence[str]) -> str:
    """Where each next character leads when end[:seen] stands before it."""
    chars = sorted(set(end))
    moves: list[str] = []
    back: list[str] = []
    for char in chars:
        reached = _overlap(end, end[:seen] + char)
        if reached == 0:
            back.append(char)
        elif reached == len(end):
            moves.append(literal(char))
        else:
            moves.append(f"{literal(char)} {states[reached]}")
    moves.extend(f"{literal(char)} {states[0]}" for char in back)
    moves.append(f"[^{''.join(_in_class(char) for char in chars)}] {states[0]}")
    return " | ".join(moves)


def _overlap(end: str, text: str) -> int:
    """How many characters of `end` a text ends with."""
    return next(length for length in range(min(len(end), len(text)), -1, -1) if text.endswith(end[:length]))
