"""A competent model that repairs the small task, played by a script: prompt ids in, answer ids out.

It knows nothing but the prompt. It is decoded, the results of tools in it are counted, and their number says which
turn it is:

    none -> `ls`;  1 -> read the file, and `git status`, in one turn;  3 -> test, which fails;
    4 -> edit;  5 -> test again, which passes;  6 -> say so

The answers are written as Qwen 3 writes them: thinking, text, tool calls in JSON with blanks behind `:` and `,`. Some
texts end in a line break or in blanks, and the ids are not the ones that a tokenizer would choose for the same text, so
whatever a client, or a proxy, writes anew is seen.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

MARKS = re.compile(r"(</?think>\n*|\n*</?tool_call>\n?|<\|im_end\|>)")
PIECE_CHARS = 11


class Turn(enum.IntEnum):
    """What the model does, in order."""

    LIST = 0
    READ = 1
    TEST_FAILS = 2
    EDIT = 3
    TEST_PASSES = 4
    DONE = 5
    """The last one, whatever comes."""
    STATUS = 6
    """What is left of READ where an answer was cut behind its first call, and the harness went on from there."""


TURNS = 6
"""In a run in which nothing goes wrong."""
BY_ANSWERS = (Turn.LIST, Turn.READ, Turn.TEST_FAILS, Turn.EDIT, Turn.TEST_PASSES)
"""The turn by how many answers of the model do."""
BY_RESULTS = (Turn.LIST, Turn.READ, Turn.STATUS, Turn.TEST_FAILS, Turn.EDIT, Turn.TEST_PASSES)
"""The turn by how many results of tools stand in the prompt."""


@dataclass(frozen=True)
class ToolUse:
    """One call of a tool, as a model writes it."""

    name: str
    arguments: dict[str, Any]

    def as_code(self) -> str:
        """The call as a line of Python."""
        given = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        return f"{self.name}({given})"


@dataclass(frozen=True)
class Hands:
    """How a harness's tools do what the task needs."""

    shell: Callable[[str], ToolUse]
    read: Callable[[str], ToolUse]
    """By the file's name in the repository."""
    edit: Callable[[str, str, str], ToolUse]
    """Name, old text, new text."""
    done: Callable[[], ToolUse] | None = None
    """How the harness is told that the work is done; None: by an answer without a call."""
    result: re.Pattern[str] = re.compile(r"<tool_response>\n")
    """Found once for each result in a prompt, or whatever else is counted."""
    turns: tuple[Turn, ...] = BY_RESULTS
    """The turn by how often it is found; beyond them, the last one."""
    main: re.Pattern[str] = re.compile(r"\A<\|im_start\|>system\n(?:(?!<\|im_end\|>).)*<tools>", re.DOTALL)
    """Found in the prompts of the task and in no other."""
    in_code: bool = False
    """Whether it is called by a block of Python, behind which the harness has the answer stopped."""


THOUGHTS = {
    Turn.LIST: "I should see what is there first.",
    Turn.READ: "The file, and whether anything was changed.\nBoth at once.",
    Turn.TEST_FAILS: "It subtracts. Let me see the test fail.",
    Turn.EDIT: "The operator is wrong: a - b, not a + b.",
    Turn.TEST_PASSES: "Now it should pass.",
    Turn.DONE: "It passed, nothing is left to do.",
    Turn.STATUS: "That was the file. Was anything changed?",
}
TEXTS = {
    Turn.LIST: "I will look at the repository first.",
    Turn.READ: "Two things at once.",
    Turn.TEST_FAILS: "",
    Turn.EDIT: "The operator is wrong, I will edit it.\n",
    Turn.TEST_PASSES: "Test again.  ",
    Turn.DONE: "Fixed: `add` adds now, and the test passes.\n",
    Turn.STATUS: "",
}
TITLE = '{"title": "Fix calc"}'
TEST = "python3 test_calc.py"


class PlayedModel:
    """Answers any prompt; see the module."""

    def __init__(self, hands: Hands) -> None:
        self._hands = hands

    def turn(self, prompt: str) -> Turn | None:
        """Which turn of the task a prompt asks for; None: it does not ask for one, but for a title or the like."""
        if not self._hands.main.search(prompt):
            return None
        found = len(self._hands.result.findall(prompt))
        return self._hands.turns[found] if found < len(self._hands.turns) else Turn.DONE

    def answer(self, prompt: str) -> str:
        """The text of the answer, up to and with its stop token."""
        turn = self.turn(prompt)
        thinks = not prompt.endswith("</think>\n\n")
        if turn is None:
            return written("The title says what is asked." if thinks else "", TITLE, ())
        write = written_as_code if self._hands.in_code else written
        return write(THOUGHTS[turn], TEXTS[turn], self._calls(turn))

    def _calls(self, turn: Turn) -> tuple[ToolUse, ...]:
        hands = self._hands
        match turn:
            case Turn.LIST:
                return (hands.shell("ls -la"),)
            case Turn.READ:
                return (hands.read("calc.py"), hands.shell("git status --short"))
            case Turn.STATUS:
                return (hands.shell("git status --short"),)
            case Turn.TEST_FAILS | Turn.TEST_PASSES:
                return (hands.shell(TEST),)
            case Turn.EDIT:
                return (hands.edit("calc.py", "    return a - b", "    return a + b"),)
            case Turn.DONE:
                return () if hands.done is None else (hands.done(),)


def written(thought: str, text: str, calls: tuple[ToolUse, ...]) -> str:
    """An answer in Qwen 3's own format."""
    thinking = f"<think>\n{thought}\n</think>\n\n" if thought else ""
    called = [
        f"<tool_call>\n{json.dumps({'name': call.name, 'arguments': call.arguments})}\n</tool_call>" for call in calls
    ]
    return thinking + "\n".join([*([text] if text else []), *called]) + "<|im_end|>"


def written_as_code(thought: str, text: str, calls: tuple[ToolUse, ...]) -> str:
    """An answer that calls tools by Python in `<code>`, printing what each says; the harness has it stopped there."""
    block = "\n".join(f"# What it says is printed, so that I can read it.\nprint({call.as_code()})" for call in calls)
    return f"<think>\n{thought}\n</think>\n\n{text}\n<code>\n{block}\n</code>"


def pieces(answer: str) -> list[str]:
    """An answer cut so that its ids, piece by piece, are not those of the whole text; marks stay whole."""
    cut: list[str] = []
    for part in MARKS.split(answer):
        if MARKS.fullmatch(part):
            cut.append(part)
        else:
            cut += [part[at : at + PIECE_CHARS] for at in range(0, len(part), PIECE_CHARS)]
    return [piece for piece in cut if piece]
