"""Stored ids put back into rewritten histories of real templates, against bridges and against whole renders.

`TURNSTILE_FAMILIES=all` runs all families, whose files are then fetched; without it those that other tests use too.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import msgspec
import pytest

from turnstile.conversation import Call, Message, Role
from turnstile.generation import Cut, Match, NodeRef, Replay
from turnstile.templates.certificate import MultiSpliceCheck, Verdict
from turnstile.templates.checks_multi import check_multi, puts_back
from turnstile.templates.checks_shapes import NOW, as_sampled, ending_behind
from turnstile.templates.facts import probe
from turnstile.templates.multisplice import MultiSplice, multi_splice
from turnstile.templates.render import GenerationPrompt, Template, TemplateFailed
from turnstile.templates.served import Scene, Served, render
from turnstile.templates.shapes import PAST, RARE, TOOLS, calling, resulting, said
from turnstile.tokens import IdRun

pytestmark = pytest.mark.families

TURNS = 16
EXACT = (Verdict.EXACT, Verdict.EXACT)
NO_TOOLS = (Verdict.EXACT, Verdict.REFUSED)
TABLE = {
    "qwen3": EXACT,
    "qwen3.5": EXACT,
    "llama3.1": EXACT,
    "deepseek-v3.1": EXACT,
    "gpt-oss": EXACT,
    "glm4.5": EXACT,
    "qwen2.5": EXACT,
    "qwen3-coder": EXACT,
    # Raises where there are no tools.
    "hermes3": (Verdict.REFUSED, Verdict.EXACT),
    "kimi-k2": EXACT,
    "deepseek-v3": NO_TOOLS,
    "gemma4": EXACT,
    "smollm2": EXACT,
}
MORE = {
    # Their templates take no tool messages.
    "cohere2": NO_TOOLS,
    "gemma3": NO_TOOLS,
    # Prints the tools in front of the last user message, so that a conversation that grew has them elsewhere.
    "mistral-small-3.2": (Verdict.EXACT, Verdict.DIFFERENT),
}
OTHERS = (
    "command-r7b",
    "deepseek-r1-distill",
    "deepseek-v3.2",
    "deepseek-v4",
    "glm4.6",
    "glm4.7-flash",
    "granite4.0",
    "kimi-k2-thinking",
    "kimi-k2.5-fixed-miles",
    "kimi-k3",
    "lfm2.5",
    "llama3",
    "llama3.2",
    "minimax-m2",
    "minimax-m2.5-fixed-miles",
    "muse-glimmer",
    "nemotron3-nano",
    "nemotron3-super",
    "phi3",
    "phi3.5",
    "qwen2.5-vl",
    "qwen3-fixed-miles",
    "qwen3-instruct-2507",
    "qwen3-training",
    "qwen3-vl",
    "qwen3.5-fixed-miles",
    "qwen3.5-nothink",
    "qwen3.6",
    "qwen3.8",
    "qwq-32b",
    "seed-oss",
    "smollm3",
)
"""Exact both ways."""
ALL = os.environ.get("TURNSTILE_FAMILIES") == "all"
FAMILIES = TABLE | (MORE | dict.fromkeys(OTHERS, EXACT) if ALL else {})
APPEND_STABLE = {
    "qwen3": (False,),
    "llama3.1": (False,),
    "deepseek-v3.1": (False,),
    "gpt-oss": (False,),
    "glm4.5": (False,),
    "qwen2.5": (False,),
    "qwen3-coder": (False,),
    "gemma4": (False,),
    "smollm2": (False,),
    "kimi-k2": (False,),
}
MORE_STABLE = {
    "deepseek-v4": (False,),
    "glm4.6": (False,),
    "granite4.0": (False,),
    "kimi-k2-thinking": (False,),
    "kimi-k2.5-fixed-miles": (False,),
    "kimi-k3": (
        False,
        True,
    ),
    "lfm2.5": (False,),
    "llama3": (False,),
    "llama3.2": (False,),
    "muse-glimmer": (
        False,
        True,
    ),
    "phi3": (False,),
    "phi3.5": (False,),
    "qwen2.5-vl": (False,),
    "qwen3-instruct-2507": (False,),
    "qwen3-training": (
        False,
        True,
    ),
    "qwen3-vl": (False,),
    "qwen3.8": (True,),
    "seed-oss": (
        False,
        True,
    ),
    "smollm3": (False,),
}
CHAINS = [
    (name, thinking) for name, kinds in (APPEND_STABLE | (MORE_STABLE if ALL else {})).items() for thinking in kinds
]


@pytest.mark.parametrize("family_name", FAMILIES)
def test_what_can_be_put_back_is_what_the_table_says(served: Callable[[str], Served], family_name: str) -> None:
    plain, tools = check_multi(served(family_name), "{}")
    assert (plain.verdict, tools.verdict) == FAMILIES[family_name], (plain.detail, tools.detail)
    assert (plain.tools, tools.tools) == (False, True)


@pytest.mark.parametrize(("family_name", "thinking"), CHAINS)
def test_sixteen_answers_put_back_at_once_are_one_whole_render(
    served: Callable[[str], Served], family_name: str, thinking: bool
) -> None:
    """The reference shares nothing with what is tested but render and encode."""
    model = served(family_name).for_tools(tuple(tool.declaration for tool in TOOLS))
    messages = conversation(model, "I should look." if thinking else "")
    whole_T, sampled = reference(model, messages)
    replays = tuple(Replay(at, at, NodeRef("c", at), ids_S, messages[at], Cut.NONE) for at, ids_S in sampled.items())
    call = Call("test", "", messages, tools=TOOLS)
    built = multi_splice(model, Match(None, 0, messages, None, replays=replays), call, NOW)
    assert isinstance(built, MultiSplice)
    assert [replay.index for replay in built.replayed] == list(sampled)
    assert built.bridge.added_A == whole_T


def conversation(model: Served, thinking: str) -> tuple[Message, ...]:
    """Three turns with a tool, then one of a user's, sixteen in all."""
    messages = list(PAST)
    for at in range(TURNS):
        letter = chr(ord("a") + at)
        if at % 4 == 3:
            messages += (
                said(Role.ASSISTANT, f"That was the {RARE}{letter}", reasoning=thinking),
                said(Role.USER, "Look further."),
            )
            continue
        prefix = f"chaincl{letter}"
        answer = calling(("shell", f'{{"command":"cat {RARE}{letter}"}}'), reasoning=thinking, prefix=prefix)
        if model.facts.drops_calls:
            answer = msgspec.structs.replace(answer, parts=said(Role.ASSISTANT, f"$ cat {RARE}{letter}").parts)
        messages += (answer, resulting(f"line {at}", prefix=prefix))
    return tuple(messages)


def reference(model: Served, messages: tuple[Message, ...]) -> tuple[IdRun, dict[int, IdRun]]:
    """The whole render as ids, and of each answer what the engine sampled if those were its prompts."""
    scene = Scene((), tuple(tool.declaration for tool in TOOLS), "{}", NOW)
    text = render(model, scene, messages, GenerationPrompt.ADD)
    encoded = model.tokenizer.encode_with_offsets(text)
    sampled: dict[int, IdRun] = {}
    for at in range(len(PAST), len(messages), 2):
        prompt = render(model, scene, messages[:at], GenerationPrompt.ADD)
        assert text.startswith(prompt), "the family is not append-stable"
        word = f"{RARE}{chr(ord('a') + (at - len(PAST)) // 2)}"
        end = ending_behind(model, text, text.index(word) + len(word))
        assert end is not None
        inside = [k for k, (start, _) in enumerate(encoded.offsets) if len(prompt) <= start < end]
        assert encoded.offsets[inside[0] - 1][1] <= len(prompt)
        sampled[at], _ = as_sampled(model, encoded.ids.slice(inside[0], inside[-1] + 1))
    return encoded.ids, sampled


def test_a_template_that_counts_its_answers_backwards_is_not_exact(served: Callable[[str], Served]) -> None:
    """What it prints in front of an answer changes with what follows."""
    counting = remade(
        served("qwen3"),
        "{% for m in messages %}<|im_start|>{{ m.role }} {{ loop.revindex }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant 0\n{% endif %}",
    )
    plain, _ = check_multi(counting, "{}")
    assert plain.verdict is not Verdict.EXACT
    assert plain.detail


def test_a_template_that_refuses_the_conversation_is_refused(served: Callable[[str], Served]) -> None:
    refusing = remade(served("qwen3"), "{{ raise_exception('no') }}")
    plain, tools = check_multi(refusing, "{}")
    assert plain.verdict is Verdict.REFUSED
    assert "no" in plain.detail
    assert tools == MultiSpliceCheck(True, plain.verdict, plain.detail)


def test_the_check_at_run_time_is_that_for_requests_of_the_kind(served: Callable[[str], Served]) -> None:
    model = served("gemma3") if ALL else served("hermes3")
    plain, tools = check_multi(model, "{}")
    user = said(Role.USER, "Hello")
    assert puts_back(model, Call("test", "", (user,))) == (plain.verdict is Verdict.EXACT)
    assert puts_back(model, Call("test", "", (user,), tools=TOOLS)) == (tools.verdict is Verdict.EXACT)


def test_of_arguments_that_a_client_makes_up_only_so_many_are_checked(served: Callable[[str], Served]) -> None:
    model = remade(served("qwen3"), served("qwen3").template.source)
    asked: list[str] = []

    def check(name: str) -> bool:
        asked.append(name)
        return True

    answers = [model.puts_back(str(at), lambda at=at: check(str(at))) for at in range(70)]
    assert answers == [True] * 64 + [False] * 6
    assert len(asked) == 64
    assert model.puts_back("0", lambda: False)


def remade(model: Served, source: str) -> Served:
    template = Template(source, {})
    try:
        facts = probe(template, model.tokenizer, model.stop_ids)
    except TemplateFailed:
        facts = model.facts
    return Served(model.model, model.tokenizer, template, facts, model.stop_ids)
