"""What a spliced turn costs, as a conversation grows, beside rendering and encoding it whole; and what a check costs.

    python benchmarks/bridge.py [--quick] [--json FILE] [--held IDS ...] [--families NAME ...] [--certify]

Real tokenizers and templates (tests/families/fetch.py). A turn is one tool result of some 600 ids, fresh text each
time, so that no tokenizer gains by having seen it. All times are CPU time of all threads, those of turns medians, all
of a family in one run. Numbers are printed, never asserted.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from turnstile.conversation import Call, Message, Past, Role, Text, ToolCall, ToolSpec
from turnstile.generation import Cut, HeldAnswer, Match, NodeRef, Prompt, Spliced
from turnstile.server.certificates import certificate_of
from turnstile.server.local_files import read_model_folder
from turnstile.templates.accelerators import accelerated, at_hand
from turnstile.templates.certify import certify
from turnstile.templates.facts import serve
from turnstile.templates.plan import plan
from turnstile.templates.served import Served
from turnstile.tokens import IdRun

FAMILIES = ("qwen3", "llama3.1", "gpt-oss")
HELD = (2_000, 8_000, 32_000, 128_000)
NOW = datetime(2026, 12, 1, tzinfo=UTC)
_RESULT_IDS = 600
_TOOL = ToolSpec(
    "read_file",
    '{"type":"function","function":{"name":"read_file","description":"Read a file of the project","parameters":'
    '{"type":"object","properties":{"path":{"type":"string","description":"Where"}},"required":["path"]}}}',
)
_SYLLABLES = ("ba", "ker", "min", "tol", "ran", "is", "del", "or", "pre", "ter", "con", "al", "st", "ive", "un", "ly")


@dataclass(frozen=True)
class Measured:
    """One family at one length."""

    family: str
    held: int
    bridge_ms: float
    bridge_fast_ms: float
    """With the accelerators that the certificate allows."""
    whole_ms: float
    whole_fast_ms: float
    engines: str

    @property
    def ratio(self) -> float:
        """How many bridges a whole render and encode costs."""
        return self.whole_ms / self.bridge_ms


class Conversation:
    """A history of tool calls with about as many ids as asked for, and a next turn, new each time."""

    def __init__(self, served: Served, held: int) -> None:
        """Compose it."""
        self._served = served
        self._draw = random.Random(held)
        self._words = tuple("".join(self._draw.choices(_SYLLABLES, k=self._draw.randint(1, 4))) for _ in range(4_000))
        system = Message(role=Role.SYSTEM, parts=(Text("You are a careful engineer. " * 20),))
        messages = [system, Message(role=Role.USER, parts=(Text("Find the fault."),))]
        length = 200
        while length < held:
            call_id = f"call{len(messages):05}"
            result = self._result(call_id)
            messages += [_calling(call_id), result]
            length += 40 + len(served.tokenizer.encode(result.parts[0].text))
        self.history_M = tuple(messages)
        self._past = Past().then(self.history_M)
        self.held = held
        self._filler = IdRun.of(self._draw.choices(range(100, 60_000), k=held - 1))

    def _result(self, call_id: str) -> Message:
        words = self._draw.choices(self._words, k=180)
        text = "".join(f"{word}{self._draw.choice((' ', ' ', ', ', chr(10)))}" for word in words)
        return Message(role=Role.TOOL, parts=(Text(text),), call_id=call_id)

    def turn(self, stop_id: int) -> tuple[Call, Match]:
        """The next request and what of it is held: all but the new result."""
        answer = _calling("callnew01")
        new_M = (self._result("callnew01"),)
        held = HeldAnswer(
            NodeRef("call"),
            self._filler + IdRun.of([stop_id]),
            answer,
            Cut.NONE,
            self.history_M,
            # As a forest has it: counted when the answer came.
            counted=self._past.then((answer,)),
        )
        call = Call("openai.chat", self._served.model, (*self.history_M, answer, *new_M), tools=(_TOOL,))
        return call, Match(held, len(self.history_M) + 1, new_M, None)

    def opening(self) -> tuple[Call, Match]:
        """The same as a first request, with nothing held."""
        messages = (*self.history_M, _calling("callnew01"), self._result("callnew01"))
        # A word in front, so that no render before was alike.
        first = Message(role=Role.SYSTEM, parts=(Text(f"Run {self._draw.random()}. You are careful."),))
        messages = (first, *messages[1:])
        return Call("openai.chat", self._served.model, messages, tools=(_TOOL,)), Match(None, 0, messages, None)


def _calling(call_id: str) -> Message:
    return Message(role=Role.ASSISTANT, calls=(ToolCall(call_id, "read_file", '{"path":"src/main.py"}'),))


def median_ms(served: Served, turns: Iterator[tuple[Call, Match]]) -> float:
    """Median CPU time of `plan` over turns that are composed before the clock starts."""
    taken: list[float] = []
    for call, match in turns:
        began = time.process_time()
        plan(served, call, match, NOW)
        taken.append(time.process_time() - began)
    return 1e3 * statistics.median(taken)


def measure(reference: Served, fast: Served, engines: str, held: int, repeats: int) -> Measured:
    """One family at one length."""
    talk = Conversation(reference, held)
    stop_id = _stop_that_splices(reference, talk)

    def turns(count: int) -> list[tuple[Call, Match]]:
        return [talk.turn(stop_id) for _ in range(count)]

    def openings() -> list[tuple[Call, Match]]:
        return [talk.opening() for _ in range(3)]

    for served in (reference, fast):
        median_ms(served, iter(turns(3)))
    return Measured(
        reference.model,
        held,
        median_ms(reference, iter(turns(repeats))),
        median_ms(fast, iter(turns(repeats))),
        median_ms(reference, iter(openings())),
        median_ms(fast, iter(openings())),
        engines,
    )


def _stop_that_splices(served: Served, talk: Conversation) -> int:
    for stop_id in sorted(served.stop_ids):
        prompt: Prompt = plan(served, *talk.turn(stop_id), NOW)
        if isinstance(prompt.history, Spliced):
            return stop_id
    raise SystemExit(f"{served.model} splices behind none of its stop tokens")


def slope(measured: list[Measured], of: Callable[[Measured], float]) -> float:
    """Least-squares growth, milliseconds for 100,000 held ids."""
    lengths = [each.held for each in measured]
    return 1e5 * statistics.linear_regression(lengths, [of(each) for each in measured]).slope if lengths[1:] else 0.0


def families_folder() -> Path:
    """Where tests/families/fetch.py lays them."""
    tools = Path(__file__).resolve().parents[1] / "tests" / "families"
    sys.path.insert(0, str(tools))
    from fetch import cache_folder

    return cache_folder()


def bridges(folder: Path, options: argparse.Namespace) -> list[Measured]:
    """All families at all lengths, printed as they come."""
    found: list[Measured] = []
    for family in options.families:
        files = read_model_folder(folder / family)
        reference = serve(files, model=family)
        faster = at_hand(files, reference)
        fast, chosen = accelerated(reference, certify(reference, faster=faster), faster)
        engines = f"{chosen.renders} + {chosen.encodes}"
        measured = [measure(reference, fast, engines, held, options.repeats) for held in options.held]
        print_table(family, measured)
        found += measured
    return found


def print_table(family: str, measured: list[Measured]) -> None:
    """One family's figures."""
    table = Table(title=f"{family}, milliseconds; accelerated: {measured[0].engines}", title_justify="left")
    for heading in ("held ids", "bridge", "accelerated", "whole", "accelerated", "whole ÷ bridge"):
        table.add_column(heading, justify="right")
    for each in measured:
        figures = (each.bridge_ms, each.bridge_fast_ms, each.whole_ms, each.whole_fast_ms)
        table.add_row(f"{each.held:,}", *(f"{figure:.2f}" for figure in figures), f"{each.ratio:.0f}x")
    rows = (lambda m: m.bridge_ms, lambda m: m.bridge_fast_ms, lambda m: m.whole_ms, lambda m: m.whole_fast_ms)
    table.add_section()
    table.add_row("a 100,000", *(f"{slope(measured, row):+.2f}" for row in rows), "")
    Console(width=None if Console().is_terminal else 120).print(table)


def certificates(folder: Path) -> dict[str, dict[str, float]]:
    """How long all checks take for each family that is there, and how long to find them done; seconds."""
    found: dict[str, dict[str, float]] = {}
    for each in sorted(folder.iterdir()):
        if not (each / "tokenizer.json").is_file() or each.name.startswith(("_", ".")):
            continue
        served = serve(read_model_folder(each), model=each.name)
        with tempfile.TemporaryDirectory() as cache:
            began = time.process_time()
            certificate_of(served, Path(cache))
            made = time.process_time()
            certificate_of(served, Path(cache))
            found[each.name] = {"made_s": made - began, "known_s": time.process_time() - made}
    for what, says in (("made_s", "all checks"), ("known_s", "a known template")):
        worst = max(found, key=lambda name: found[name][what])
        middle = statistics.median(figures[what] for figures in found.values())
        print(f"{says}: median {1e3 * middle:.1f} ms, worst {1e3 * found[worst][what]:.1f} ms ({worst})")
    return found


def main() -> None:
    """Parse, run, print."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="one family, two short lengths")
    options.add_argument("--certify", action="store_true", help="also time the checks of every family that is there")
    options.add_argument("--json", type=Path, metavar="FILE", help="write all figures to a file")
    options.add_argument("--held", type=int, nargs="+", default=HELD, help="ids held by a conversation")
    options.add_argument("--families", nargs="+", default=FAMILIES, help="model families, as tests/families lays them")
    options.add_argument("--repeats", type=int, default=50, help="turns of which the median is taken")
    chosen = options.parse_args()
    if chosen.quick:
        chosen.families, chosen.held, chosen.repeats = ("smollm2",), (1_000, 4_000), 5
    folder = families_folder()
    result: dict[str, object] = {"bridges": [asdict(each) for each in bridges(folder, chosen)]}
    if chosen.certify:
        result["certificates"] = certificates(folder)
    if chosen.json:
        chosen.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
