"""Images in prompts: one placeholder for each, in the right place, or no prompt at all."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import msgspec
import pytest

from turnstile.conversation import Call, Image, Message, Role, Text, ToolCall, ToolSpec
from turnstile.errors import CallerError
from turnstile.generation import (
    BridgeKind,
    Cut,
    Forked,
    HeldAnswer,
    Match,
    NodeRef,
    Prompt,
    Replay,
    Rerendered,
    Spliced,
)
from turnstile.reasons import ForkReason, RerenderReason
from turnstile.templates.facts import probe
from turnstile.templates.images import with_placeholders
from turnstile.templates.plan import plan
from turnstile.templates.render import GenerationPrompt, ImageType, RenderRequest, Template
from turnstile.templates.sentinel import Anchored
from turnstile.templates.served import ImageFacts, Served
from turnstile.tokens import IdRun, SegmentKind

NOW = datetime(2026, 12, 1, tzinfo=UTC)
SHOT, OTHER = Image("ab" * 32, "image/png"), Image("cd" * 32, "image/jpeg")
NUMBERED = '{"add_vision_id":true}'
SEES = "qwen3-vl"
READ = ToolSpec("read", '{"type":"function","function":{"name":"read","description":"r","parameters":{}}}')

pytestmark = pytest.mark.families


def user(*parts: Text | Image) -> Message:
    return Message(role=Role.USER, parts=parts)


ASKED = user(Text("Hi"))
LOOKED = user(OTHER, Text("What is this?"))
LOOK = user(Text("Here:"), SHOT, Text("And this?"))
ANSWER = Message(role=Role.ASSISTANT, parts=(Text("A door."),))
SCREEN = Message(role=Role.TOOL, parts=(Text("Screen:"), SHOT), call_id="callid000")
CALLS = Message(role=Role.ASSISTANT, calls=(ToolCall("callid000", "read", '{"path":"x"}'),))


def rendered(served: Served, messages: tuple[Message, ...], kwargs: str = "{}") -> str:
    request = RenderRequest(messages=messages, kwargs=kwargs, now=NOW, form=served.facts.form)
    return served.template.render(request)


def planned(
    served: Served, past: tuple[Message, ...], answer: Message, new: tuple[Message, ...], kwargs: str = "{}"
) -> Prompt:
    """The prompt behind an answer whose path was rendered whole and sampled as the template writes it."""
    request = RenderRequest(
        messages=(*past, answer), kwargs=kwargs, generation=GenerationPrompt.OMIT, now=NOW, form=served.facts.form
    )
    text = served.template.render(request).rstrip("\n")
    held = HeldAnswer(NodeRef("c1"), served.tokenizer.encode(text), answer, Cut.NONE, past)
    call = Call("openai.chat", "m", (*past, answer, *new), template_kwargs=kwargs)
    return plan(served, call, Match(held, len(past) + 1, new, None), NOW)


def count(served: Served, ids: IdRun) -> int:
    assert served.facts.images is not None
    return ids.tolist().count(served.facts.images.placeholder_id)


def test_a_template_that_looks_for_image_urls_is_given_them(served: Callable[[str], Served]) -> None:
    model = served(SEES)
    source = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.content is string %}{{ m.content }}"
        "{% else %}{% for p in m.content %}{% if p.type == 'image_url' %}<|image_pad|>{% elif p.type == 'text' %}"
        "{{ p.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    )
    facts = probe(Template(source, {}), model.tokenizer, model.stop_ids)
    assert facts.form.image_type is ImageType.IMAGE_URL
    assert facts.images == ImageFacts("<|image_pad|>", 151655, frozenset(Role))


@pytest.mark.parametrize("family_name", ["qwen3", "llama3.1", "gpt-oss", "minimax-m2"])
def test_a_template_that_drops_images_or_prints_them_as_python_takes_none(
    served: Callable[[str], Served], family_name: str
) -> None:
    assert served(family_name).facts.images is None


def test_an_image_in_a_new_message_is_spliced_and_is_an_observation(served: Callable[[str], Served]) -> None:
    model = served(SEES)
    prompt = planned(model, (LOOKED,), ANSWER, (LOOK,))
    assert prompt.history == Spliced(BridgeKind.SENTINEL)
    assert count(model, prompt.added_A) == 1
    assert model.tokenizer.decode(prompt.held_T + prompt.added_A) == rendered(model, (LOOKED, ANSWER, LOOK))
    at = prompt.added_A.tolist().index(model.facts.images.placeholder_id if model.facts.images else -1)
    kinds = [segment.kind for segment in prompt.added_segments if segment.start <= at < segment.end]
    assert kinds == [SegmentKind.OBSERVATION]


@pytest.mark.parametrize("family_name", ["qwen3-vl", "qwen2.5-vl"])
@pytest.mark.parametrize(
    ("past", "new", "kind"),
    [
        ((ASKED,), LOOK, BridgeKind.SENTINEL),
        ((LOOKED,), LOOK, BridgeKind.REAL_HISTORY),
        ((LOOKED, ANSWER, user(Text("Go on."))), LOOK, BridgeKind.REAL_HISTORY),
    ],
)
def test_pictures_that_the_template_numbers_are_read_off_the_whole_history(
    served: Callable[[str], Served], family_name: str, past: tuple[Message, ...], new: Message, kind: BridgeKind
) -> None:
    model = served(family_name)
    prompt = planned(model, past, ANSWER, (new,), NUMBERED)
    assert prompt.history == Spliced(kind)
    whole = rendered(model, (*past, ANSWER, new), NUMBERED)
    assert model.tokenizer.decode(prompt.held_T + prompt.added_A) == whole


def test_text_that_would_be_taken_for_an_image_is_refused_beside_images(served: Callable[[str], Served]) -> None:
    model = served(SEES)
    with pytest.raises(CallerError) as caught:
        planned(model, (LOOKED,), ANSWER, (user(Text("say <|image_pad|> now")),))
    assert (caught.value.code, caught.value.param) == ("invalid_value", "messages[2]")
    assert caught.value.problem == (
        "`messages[2]` has the text '<|image_pad|>', in the place of which the model would be shown an image"
    )


def test_the_same_text_is_noted_only_where_there_are_no_images(served: Callable[[str], Served]) -> None:
    prompt = planned(served(SEES), (ASKED,), ANSWER, (user(Text("say <|image_pad|> now")),))
    assert [note.code.value for note in prompt.notes] == ["control_text_in_content"]


def test_case_a5_an_image_never_moves_into_the_place_of_a_placeholder_that_was_sampled(
    served: Callable[[str], Served],
) -> None:
    model = served(SEES)
    assert model.facts.images is not None
    sampled_T = model.tokenizer.encode("A ") + IdRun.of([model.facts.images.placeholder_id, min(model.stop_ids)])
    past = (LOOKED,)
    held_T = model.tokenizer.encode(rendered(model, past)) + sampled_T
    held = HeldAnswer(NodeRef("c1"), held_T, ANSWER, Cut.NONE, past)
    prompt = plan(model, Call("d", "m", (*past, ANSWER, LOOK)), Match(held, 2, (LOOK,), None), NOW)
    detail = "what is held has 2 image placeholders for 1 images"
    assert prompt.history == Rerendered(RerenderReason.MEDIA_CHANGED, detail)
    assert (prompt.parent, count(model, prompt.added_A)) == (None, 2)


@pytest.mark.parametrize(
    ("family_name", "new", "problem"),
    [
        ("qwen3", LOOK, "`messages[2]` holds an image, but the served chat template prints none"),
        ("mistral-small-3.2", SCREEN, "`messages[2]` holds an image, but the served chat template prints none in tool"),
    ],
)
def test_an_image_that_the_template_would_not_print_is_refused_by_its_message(
    served: Callable[[str], Served], family_name: str, new: Message, problem: str
) -> None:
    model = served(family_name)
    held = HeldAnswer(NodeRef("c1"), IdRun.of([0, min(model.stop_ids)]), CALLS, Cut.NONE, (ASKED,))
    with pytest.raises(CallerError) as caught:
        plan(model, Call("d", "m", (ASKED, CALLS, new), tools=(READ,)), Match(held, 2, (new,), None), NOW)
    assert (caught.value.status, caught.value.code, caught.value.param) == (400, "images_not_supported", "messages[2]")
    assert caught.value.problem.startswith(problem)


def test_case_i3_answers_behind_a_blanked_screenshot_keep_their_ids_and_images_their_places(
    served: Callable[[str], Served],
) -> None:
    model = served(SEES)
    blanked = user(Text("[image omitted]"), Text("What is this?"))
    messages = (blanked, ANSWER, LOOK)
    sampled_T = model.tokenizer.encode("A  door") + IdRun.of([min(model.stop_ids)])
    replay = Replay(1, 1, NodeRef("c1"), sampled_T, ANSWER, Cut.NONE)
    departure = Forked(ForkReason.MEDIA_CHANGED, 0)
    prompt = plan(model, Call("d", "m", messages), Match(None, 0, messages, departure, replays=(replay,)), NOW)
    assert (prompt.history, prompt.replayed, count(model, prompt.added_A)) == (departure, (NodeRef("c1"),), 1)
    at = prompt.added_A.tolist().index(151655)
    kinds = [(part.kind, part.start <= at < part.end) for part in prompt.added_segments]
    assert (SegmentKind.OBSERVATION, True) in kinds
    assert [kind for kind, _ in kinds].count(SegmentKind.REPLAYED) == 1


def test_the_first_prompt_is_counted_too(served: Callable[[str], Served]) -> None:
    model = served(SEES)
    shown = msgspec.structs.replace(LOOK, parts=(SHOT, Text("<|image_pad|>")))
    with pytest.raises(CallerError, match=r"messages\[0\]"):
        plan(model, Call("d", "m", (shown,)), Match(None, 0, (shown,), None), NOW)


def test_a_template_without_images_has_no_places_of_placeholders(served: Callable[[str], Served]) -> None:
    new = Anchored(IdRun.of([1, 2]), ((0, 1), (1, 2)))
    assert with_placeholders(served("qwen3"), new, ()) == ()
