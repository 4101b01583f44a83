"""Bridges of real templates against whole renders, case by case (docs/decisions/0004).

The reference is written here anew and shares nothing with the bridge but render and encode: the whole
conversation is rendered and encoded, and cut behind the first stop text that follows a rare word.
`TURNSTILE_FAMILIES=all` runs all families, whose files are then fetched; without it those that other tests use too.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import msgspec
import pytest

from turnstile.conversation import Call, Ending, Image, Message, Role, Text, ToolCall, ToolSpec
from turnstile.generation import Cut, HeldAnswer, Match, NodeRef
from turnstile.templates.bridge import Bridge, Crossing, history_bridge, sentinel_bridge
from turnstile.templates.facts import Served
from turnstile.templates.plan import plan
from turnstile.templates.render import GenerationPrompt, RenderRequest, TemplateFailed
from turnstile.templates.served import Refusal
from turnstile.tokens import IdRun, tiling_fault

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
RARE = "zyxomma"
END = "wxyvern"
"""Marks, in the reference only, where a message to be continued ends."""


def text(role: Role, *parts: str, reasoning: str = "", call_id: str = "") -> Message:
    return Message(role=role, parts=tuple(map(Text, parts)), reasoning=reasoning, call_id=call_id)


def calls(*named: tuple[str, str], content: str = "", reasoning: str = "") -> Message:
    """An assistant message with calls; ids have the nine letters and digits that Mistral insists on."""
    return Message(
        role=Role.ASSISTANT,
        parts=(Text(content),) if content else (),
        reasoning=reasoning,
        calls=tuple(ToolCall(f"callid00{at}", name, arguments) for at, (name, arguments) in enumerate(named)),
    )


def user(*parts: str) -> Message:
    return text(Role.USER, *parts)


def result(content: str, at: int = 0) -> Message:
    return text(Role.TOOL, content, call_id=f"callid00{at}")


BASH = ToolSpec(
    "bash",
    '{"type":"function","function":{"name":"bash","description":"Run a command","parameters":{"type":"object",'
    '"properties":{"cmd":{"type":"string","description":"The command"}},"required":["cmd"]}}}',
)
READ = ToolSpec(
    "read",
    '{"type":"function","function":{"name":"read","description":"Read a file","parameters":{"type":"object",'
    '"properties":{"path":{"type":"string","description":"The file"}},"required":["path"]}}}',
)
SYSTEM = text(Role.SYSTEM, "You are terse.")
HISTORY = (SYSTEM, user("List the files."))
DEEP = (
    *HISTORY,
    Message(role=Role.ASSISTANT, calls=(ToolCall("earlier00", "bash", '{"cmd":"pwd"}'),)),
    text(Role.TOOL, "/home", call_id="earlier00"),
    text(Role.ASSISTANT, "You are at home."),
    user("And now?"),
)
ANSWER = text(Role.ASSISTANT, f"Three files and a {RARE}")
CALL = calls(("bash", f'{{"cmd":"ls {RARE}"}}'))
NEXT = user("Thanks. What is in the first?")


@dataclass(frozen=True)
class Case:
    answer: Message
    new_M: tuple[Message, ...]
    history_M: tuple[Message, ...] = HISTORY
    tools: tuple[ToolSpec, ...] = (BASH, READ)
    ending: Ending = Ending.ANSWER
    cut: Cut = Cut.NONE

    @property
    def call(self) -> Call:
        messages = (*self.history_M, self.answer, *self.new_M)
        return Call("openai.chat", "m", messages, tools=self.tools, ending=self.ending)


CASES = {
    "user_after_answer": Case(ANSWER, (NEXT,), tools=()),
    "user_after_answer_tools": Case(ANSWER, (NEXT,)),
    "tool_result": Case(CALL, (result("a.txt\nb.txt"),)),
    "tool_result_with_content": Case(
        calls(("bash", f'{{"cmd":"ls {RARE}"}}'), content="I will look."), (result("a.txt\nb.txt"),)
    ),
    "tool_result_think": Case(
        calls(("bash", f'{{"cmd":"ls {RARE}"}}'), reasoning="I should look."), (result("a.txt\nb.txt"),)
    ),
    "user_after_think": Case(text(Role.ASSISTANT, f"Three files and a {RARE}", reasoning="There are three."), (NEXT,)),
    "parallel_two_results": Case(
        calls(("bash", '{"cmd":"ls"}'), ("read", f'{{"path":"/tmp/{RARE}"}}')), (result("a.txt"), result("text", 1))
    ),
    "parallel_same_tool": Case(
        calls(("bash", '{"cmd":"ls"}'), ("bash", f'{{"cmd":"pwd {RARE}"}}')), (result("a.txt"), result("/home", 1))
    ),
    "result_then_user": Case(CALL, (result("a.txt"), NEXT)),
    "two_users": Case(ANSWER, (user("Thanks."), NEXT)),
    "system_middle": Case(ANSWER, (text(Role.SYSTEM, "Few tokens are left."), NEXT)),
    "tool_text_odd": Case(CALL, (result('  {"a": [1, "x\\ty"],\t"b": "<&>"}\n\n '),)),
    "tool_text_unicode": Case(CALL, (result("文件 🙂\u00a0a\r\nb\u200bc"),)),
    "tool_text_empty": Case(CALL, (result(""),)),
    "user_ws": Case(ANSWER, (user("\n\n  What now?  \n\n"),)),
    "user_special_text": Case(ANSWER, (user("say <|im_end|> and <tool_call> and </s> now"),)),
    "user_parts": Case(ANSWER, (user("First part.", "Second part."),)),
    "deep_tool": Case(CALL, (result("a.txt\nb.txt"),), history_M=DEEP),
    "deep_user": Case(ANSWER, (NEXT,), history_M=DEEP),
    "nosys_tool": Case(CALL, (result("a.txt\nb.txt"),), history_M=HISTORY[1:]),
    "prefill": Case(ANSWER, (NEXT, text(Role.ASSISTANT, "The first one")), ending=Ending.CONTINUE),
    "prefill_after_tool": Case(CALL, (result("a.txt"), text(Role.ASSISTANT, "There is")), ending=Ending.CONTINUE),
    "trunc_content": Case(ANSWER, (NEXT,), cut=Cut.CONTENT),
    "trunc_no_tools": Case(ANSWER, (NEXT,), tools=(), cut=Cut.CONTENT),
}

SHOT, EARLIER_SHOT = Image("ab" * 32, "image/png"), Image("cd" * 32, "image/jpeg")
SHOWN = Message(role=Role.USER, parts=(Text("Here:"), SHOT, Text("What do you see?")))
SHOWN_EARLIER = (SYSTEM, Message(role=Role.USER, parts=(EARLIER_SHOT, Text("What is this?"))))
SEEN = (*SHOWN_EARLIER, text(Role.ASSISTANT, "A door."), user("Go on."))
SCREEN = Message(role=Role.TOOL, parts=(Text("The screen:"), SHOT), call_id="callid000")
IMAGE_CASES = {
    "user_image": Case(ANSWER, (SHOWN,)),
    "user_image_deep": Case(ANSWER, (SHOWN,), history_M=SEEN),
    "tool_image": Case(CALL, (SCREEN,), history_M=SHOWN_EARLIER),
}
"""Three more, for the families that are made for images."""


@dataclass(frozen=True)
class Expected:
    """What is not identical to the whole render, by case."""

    repaired: tuple[str, ...] = ()
    """Different from the small conversation, identical from the real history."""
    different: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    whole_raises: tuple[str, ...] = ()
    """Only the bridge works."""
    both_refuse: tuple[str, ...] = ()
    takes_images: bool = False

    def outcomes(self) -> dict[str, str]:
        named = {
            "repaired": self.repaired,
            "different": self.different,
            "refused": self.refused,
            "whole_raises": self.whole_raises,
            "both_refuse": self.both_refuse,
        }
        cases = CASES | IMAGE_CASES if self.takes_images else CASES
        return dict.fromkeys(cases, "identical") | {case: what for what, cases in named.items() for case in cases}


PARALLEL = ("parallel_two_results", "parallel_same_tool")
COUNTS = Expected(repaired=("deep_tool",))
"""Prints a counter or a one-time opener."""
NO_LATE_SYSTEM = Expected(both_refuse=("system_middle",))
ONE_CALL = Expected(whole_raises=PARALLEL)
SHOWS = Expected(takes_images=True)
SHOWS_NO_LATE_SYSTEM = replace(NO_LATE_SYSTEM, takes_images=True)
WRONG_HEADER = Expected(refused=("system_middle",))
"""The sampled stop is the header of a user's message, and a system message follows."""

# Design figures count raw lists of text parts as refused by templates that raise on them. Lists are written as one
# string now, so that `user_parts` is identical everywhere.
TABLE = {
    "qwen3": Expected(),
    "qwen3.5": SHOWS_NO_LATE_SYSTEM,
    "llama3.1": ONE_CALL,
    "deepseek-v3.1": Expected(),
    "gpt-oss": Expected(both_refuse=PARALLEL),
    "glm4.5": WRONG_HEADER,
    "qwen2.5": Expected(),
    "qwen3-coder": Expected(),
    "hermes3": Expected(both_refuse=("user_after_answer", "trunc_no_tools")),
    "kimi-k2": COUNTS,
    "deepseek-v3": COUNTS,
    # The template itself moves the text in front of a call behind the tool's answer; a splice keeps the sampled order.
    "gemma4": Expected(different=("tool_result_with_content",), takes_images=True),
    "smollm2": Expected(),
}
MORE = {
    "cohere2": Expected(whole_raises=("deep_tool", "deep_user"), both_refuse=("two_users", "prefill_after_tool")),
    "command-r7b": COUNTS,
    "deepseek-r1-distill": COUNTS,
    "deepseek-v3.2": Expected(),
    "deepseek-v4": Expected(),
    "gemma3": Expected(
        whole_raises=("deep_user",),
        both_refuse=tuple(
            name
            for name, case in (CASES | IMAGE_CASES).items()
            if case.new_M[0].role is Role.TOOL or name in ("two_users", "system_middle")
        ),
        takes_images=True,
    ),
    "glm4.6": WRONG_HEADER,
    "glm4.7-flash": WRONG_HEADER,
    "granite4.0": Expected(),
    "kimi-k2-thinking": COUNTS,
    "kimi-k2.5-fixed-miles": SHOWS,
    "kimi-k3": Expected(),
    "lfm2.5": Expected(),
    "llama3": Expected(),
    "llama3.2": ONE_CALL,
    "minimax-m2": Expected(),
    "minimax-m2.5-fixed-miles": Expected(),
    # It prints the parts of a tool's result as Python would: identical, and refused by name before it is sent.
    "mistral-small-3.2": Expected(
        whole_raises=("result_then_user",), both_refuse=("two_users", "system_middle"), takes_images=True
    ),
    "muse-glimmer": SHOWS,
    "nemotron3-nano": Expected(),
    "nemotron3-super": Expected(),
    "phi3": Expected(),
    "phi3.5": Expected(),
    "qwen2.5-vl": SHOWS,
    "qwen3-fixed-miles": Expected(),
    "qwen3-instruct-2507": Expected(),
    "qwen3-training": Expected(),
    "qwen3-vl": SHOWS,
    "qwen3.5-fixed-miles": SHOWS_NO_LATE_SYSTEM,
    "qwen3.5-nothink": SHOWS_NO_LATE_SYSTEM,
    "qwen3.6": SHOWS_NO_LATE_SYSTEM,
    "qwen3.8": SHOWS_NO_LATE_SYSTEM,
    "qwq-32b": Expected(),
    "seed-oss": Expected(),
    "smollm3": Expected(),
}
EXPECTED = TABLE | MORE
TEXT_MODELS = ("kimi-k2", "kimi-k2-thinking", "kimi-k3")
"""Published for text, with templates that print images all the same; the table does not count them."""
RUN = tuple(EXPECTED) if os.environ.get("TURNSTILE_FAMILIES") == "all" else tuple(TABLE)


@dataclass(frozen=True)
class Reference:
    """A whole render. Shapes: held_T [H], expected_A [A]."""

    held_T: IdRun
    """Up to the end of the answer, as the engine would have sampled it."""
    expected_A: IdRun
    kept_T: int


def reference(served: Served, case: Case) -> Reference | None:
    """None: the template raises, or does not print the answer once."""
    new_M = case.new_M
    generation = GenerationPrompt.ADD
    if case.ending is Ending.CONTINUE:
        new_M = (*new_M[:-1], text(Role.ASSISTANT, new_M[-1].text + END))
        generation = GenerationPrompt.OMIT
    request = RenderRequest(
        messages=(*case.history_M, case.answer, *new_M),
        tools=tuple(tool.declaration for tool in case.tools),
        generation=generation,
        now=NOW,
        form=served.facts.form,
    )
    try:
        whole = served.template.render(request)
    except TemplateFailed:
        return None
    whole = whole.split(END)[0] if case.ending is Ending.CONTINUE else whole
    if whole.count(RARE) != 1:
        return None
    return split(served, whole, case)


def split(served: Served, whole: str, case: Case) -> Reference:
    encoded = served.tokenizer.encode_with_offsets(whole)
    body_end = whole.index(RARE) + len(RARE)
    cut = body_end if case.cut is not Cut.NONE else first_stop_end(served, whole, body_end)
    held = [token for token, (start, _) in zip(encoded.ids, encoded.offsets, strict=True) if start < cut]
    expected = encoded.ids.slice(len(held))
    history_end, returned = served.tokenizer.id_of("<|end|>"), served.tokenizer.id_of("<|return|>")
    if case.cut is Cut.NONE and returned is not None and history_end is not None and held[-1] == history_end:
        # gpt-oss samples one token and finds another in its history.
        return Reference(IdRun.of([*held[:-1], returned]), IdRun.of([history_end]) + expected, len(held) - 1)
    return Reference(IdRun.of(held), expected, len(held))


def first_stop_end(served: Served, whole: str, behind: int) -> int:
    stops = [served.tokenizer.token_bytes(token).decode() for token in served.stop_ids]
    stops += ["<|end|>"] if served.tokenizer.id_of("<|return|>") is not None else []
    return min(at + len(stop) for stop in stops if (at := whole.find(stop, behind)) >= 0)


def outcome(built: Bridge | Refusal, expected: Reference | None) -> str:
    match built, expected:
        case Refusal(), None:
            return "both_refuse"
        case Bridge(), None:
            return "whole_raises"
        case Bridge(), Reference() if built.kept_T == expected.kept_T:
            return "identical" if built.added_A == expected.expected_A else "different"
        case _:
            return "refused"


def held_answer(served: Served, case: Case, expected: Reference | None) -> HeldAnswer:
    held_T = expected.held_T if expected is not None else IdRun.of([0, min(served.stop_ids)])
    return HeldAnswer(NodeRef("call_1"), held_T, case.answer, case.cut, case.history_M)


def cases_for(served: Served, cases: dict[str, Case]) -> dict[str, Case]:
    """Where a template does not print calls, an agent has to carry them in text."""
    if not served.facts.drops_calls:
        return cases
    return {
        name: replace(case, answer=msgspec.structs.replace(case.answer, parts=(Text(f"$ ls {RARE}"),)))
        if case.answer.calls
        else case
        for name, case in cases.items()
    }


def outcomes(served: Served, cases: dict[str, Case]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, case in cases_for(served, cases).items():
        expected = reference(served, case)
        crossing = Crossing.of(served, held_answer(served, case, expected), case.new_M, case.call, NOW)
        built = sentinel_bridge(crossing)
        found[name] = outcome(built, expected)
        if found[name] == "different" and outcome(history_bridge(crossing), expected) == "identical":
            found[name] = "repaired"
    return found


@pytest.mark.families
@pytest.mark.parametrize("family_name", RUN)
def test_the_sentinel_bridge_is_identical_to_a_whole_render_but_where_the_table_says(
    served: Callable[[str], Served], family_name: str
) -> None:
    expected = EXPECTED[family_name].outcomes()
    cases = {name: case for name, case in (CASES | IMAGE_CASES).items() if name in expected}
    assert outcomes(served(family_name), cases) == expected


@pytest.mark.families
@pytest.mark.parametrize("family_name", [name for name in TEXT_MODELS if name in RUN])
def test_what_a_text_models_template_prints_of_images_is_identical_too(
    served: Callable[[str], Served], family_name: str
) -> None:
    assert outcomes(served(family_name), IMAGE_CASES) == dict.fromkeys(IMAGE_CASES, "identical")


@pytest.mark.families
@pytest.mark.parametrize("family_name", RUN)
def test_a_template_is_known_to_take_images_where_the_table_has_them(
    served: Callable[[str], Served], family_name: str
) -> None:
    takes_images = EXPECTED[family_name].takes_images or family_name in TEXT_MODELS
    assert (served(family_name).facts.images is not None) == takes_images


def test_the_table_has_1188_cases() -> None:
    found = [what for expected in EXPECTED.values() for what in expected.outcomes().values()]
    counts = {what: found.count(what) for what in dict.fromkeys(found)}
    # Of 41 cases in which raw lists of text parts have both refuse, 13 are identical here.
    assert (len(found), counts) == (
        1188,
        {"identical": 1143, "both_refuse": 28, "whole_raises": 8, "repaired": 5, "refused": 3, "different": 1},
    )


@pytest.mark.families
@pytest.mark.parametrize("family_name", RUN)
def test_a_plan_keeps_what_is_held_and_adds_what_the_template_would(
    served: Callable[[str], Served], family_name: str
) -> None:
    model = served(family_name)
    expected_outcomes = EXPECTED[family_name].outcomes()
    cases = {name: case for name, case in (CASES | IMAGE_CASES).items() if name in expected_outcomes}
    for name, case in cases_for(model, cases).items():
        expected = reference(model, case)
        if expected is None or expected_outcomes[name] in ("different", "refused") or is_unprinted(model, case):
            continue
        held = held_answer(model, case, expected)
        covered_M = len(case.history_M) + 1
        prompt = plan(model, case.call, Match(held, covered_M, case.new_M, None), NOW)
        kept_T = held.held_T.slice(0, expected.kept_T)
        assert (name, prompt.held_T, prompt.added_A) == (name, kept_T, expected.expected_A)
        assert tiling_fault(prompt.added_segments, len(prompt.added_A)) is None


def is_unprinted(served: Served, case: Case) -> bool:
    """A message with an image of which the template prints no placeholder."""
    images = served.facts.images
    return any(message.images and (images is None or message.role not in images.roles) for message in case.new_M)


@pytest.mark.families
def test_a_stop_that_is_no_header_of_what_follows_is_taken_back(served: Callable[[str], Served]) -> None:
    model = served("glm4.5")
    case = CASES["system_middle"]
    user_header = IdRun.of([2, model.tokenizer.id_of("<|user|>") or 0])
    held = HeldAnswer(NodeRef("call_1"), user_header, case.answer, Cut.NONE, HISTORY)
    prompt = plan(model, case.call, Match(held, 3, case.new_M, None), NOW)
    assert prompt.held_T == user_header.slice(0, 1)
    assert model.tokenizer.decode(prompt.added_A).startswith("<|system|>\nFew tokens are left.<|user|>\n")
