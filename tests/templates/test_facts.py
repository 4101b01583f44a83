"""What a few small renders tell about a template."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from turnstile.conversation import Role
from turnstile.templates.facts import Served, TemplateFacts, infer_stop_ids, probe, serve
from turnstile.templates.files import ModelFiles, ModelFilesError, StopSource, StopToken
from turnstile.templates.render import ArgumentsForm, ContentForm, MessageForm, Template
from turnstile.templates.served import ImageFacts, Mode, StopClass

QWEN3 = TemplateFacts(
    form=MessageForm(ArgumentsForm.OBJECT, "reasoning_content", "\n", ContentForm.STRING),
    stop_class=StopClass.CLOSED,
    drops_calls=False,
    needs_history=frozenset(),
    content_close="<|im_end|>",
    reasoning_close="\n</think>\n\n<|im_end|>",
    reasoning_opener="<think>\n",
)
PLAIN_FORM = MessageForm(ArgumentsForm.OBJECT, "", "\n", ContentForm.STRING)
FACTS = {
    "qwen3": QWEN3,
    "qwen3.5": msgspec.structs.replace(
        QWEN3,
        form=msgspec.structs.replace(QWEN3.form, joiner=""),
        reasoning_opener="<|im_start|>assistant\n<think>\n",
        images=ImageFacts("<|image_pad|>", 248056, frozenset({Role.USER, Role.TOOL, Role.ASSISTANT})),
    ),
    "llama3.1": TemplateFacts(
        form=PLAIN_FORM,
        stop_class=StopClass.CLOSED,
        drops_calls=False,
        needs_history=frozenset(),
        content_close="<|eot_id|>",
        reasoning_close="</think><|eot_id|>",
        reasoning_opener="",
    ),
    "gpt-oss": TemplateFacts(
        form=msgspec.structs.replace(PLAIN_FORM, reasoning_field="thinking"),
        stop_class=StopClass.ALIAS,
        drops_calls=False,
        needs_history=frozenset(),
        content_close="<|end|>",
        reasoning_close="<|end|>",
        reasoning_opener="<|channel|>analysis<|message|>",
    ),
    "glm4.5": TemplateFacts(
        form=msgspec.structs.replace(PLAIN_FORM, reasoning_field="reasoning_content", joiner=""),
        stop_class=StopClass.HEADER_STOP,
        drops_calls=False,
        needs_history=frozenset(),
        content_close="",
        reasoning_close="</think>",
        reasoning_opener="\n<think>",
    ),
    "deepseek-v3": TemplateFacts(
        form=msgspec.structs.replace(PLAIN_FORM, arguments=ArgumentsForm.STRING),
        stop_class=StopClass.CLOSED,
        drops_calls=False,
        drops_tools=True,
        needs_history=frozenset({Mode.ARGS}),
        content_close="<｜end▁of▁sentence｜>",  # noqa: RUF001 - DeepSeek's bars
        reasoning_close="</think><｜end▁of▁sentence｜>",  # noqa: RUF001
        reasoning_opener="",
    ),
    "gemma4": TemplateFacts(
        form=msgspec.structs.replace(PLAIN_FORM, reasoning_field="reasoning_content", joiner=""),
        stop_class=StopClass.CLOSED,
        drops_calls=False,
        needs_history=frozenset(),
        content_close="<turn|>",
        reasoning_close="\n<channel|><turn|>",
        reasoning_opener="<|channel>thought\n",
        images=ImageFacts("<|image|>", 258880, frozenset({Role.USER, Role.TOOL, Role.ASSISTANT})),
    ),
    "smollm2": TemplateFacts(
        form=PLAIN_FORM,
        stop_class=StopClass.CLOSED,
        drops_calls=True,
        drops_tools=True,
        needs_history=frozenset(),
        content_close="<|im_end|>",
        reasoning_close="</think><|im_end|>",
        reasoning_opener="",
    ),
}


@pytest.mark.families
@pytest.mark.parametrize("family_name", FACTS)
def test_a_probe_tells_how_a_template_wants_messages_and_how_it_ends_them(
    served: Callable[[str], Served], family_name: str
) -> None:
    assert served(family_name).facts == FACTS[family_name]


@pytest.mark.families
def test_a_template_that_ends_messages_with_no_stop_token_is_served_and_says_why_it_is_not_spliced(
    served: Callable[[str], Served],
) -> None:
    template = Template("{% for message in messages %}{{ message.content }}\n{% endfor %}", {})
    facts = probe(template, served("qwen3").tokenizer, served("qwen3").stop_ids)
    assert facts.stop_class is StopClass.NONE
    assert facts.problem.startswith("no_terminator: no token ends a message in")


@pytest.mark.families
def test_a_template_that_raises_on_everything_is_served_too(served: Callable[[str], Served]) -> None:
    template = Template("{{ raise_exception('never') }}", {})
    facts = probe(template, served("qwen3").tokenizer, served("qwen3").stop_ids)
    assert facts.problem == "template_error: The chat template refused the conversation: never. " + (
        "Send messages in an order and form that the model's template accepts."
    )


@pytest.mark.families
@pytest.mark.parametrize(
    ("family_name", "eos", "inferred"),
    [
        ("gpt-oss", "<|return|>", ["<|call|>"]),
        ("qwen3", "<|im_end|>", []),
        ("qwen3", "<|endoftext|>", ["<|im_end|>"]),
        ("glm4.5", "<|endoftext|>", ["<|observation|>", "<|user|>"]),
    ],
)
def test_a_closing_that_ends_with_no_named_stop_token_suggests_one(
    served: Callable[[str], Served], family_name: str, eos: str, inferred: list[str]
) -> None:
    model = served(family_name)
    found = infer_stop_ids(model.template, model.tokenizer, frozenset({model.tokenizer.id_of(eos) or 0}))
    assert sorted(model.tokenizer.token_bytes(token).decode() for token in found) == inferred


@pytest.mark.families
def test_stop_tokens_are_inferred_only_where_nothing_but_the_tokenizer_names_one(
    family_files: Callable[[str], ModelFiles],
) -> None:
    files = family_files("gpt-oss")
    eos = StopToken("<|return|>", StopSource.TOKENIZER_CONFIG)
    by_default = serve(msgspec.structs.replace(files, stop_tokens=(eos,)), model="m")
    said = StopToken("<|return|>", StopSource.GENERATION_CONFIG)
    by_file = serve(msgspec.structs.replace(files, stop_tokens=(said,)), model="m")
    engine_id = by_file.tokenizer.id_of("<|call|>") or 0
    by_engine = serve(msgspec.structs.replace(files, stop_tokens=(eos,)), model="m", stop_ids=frozenset({engine_id}))
    returned = by_file.tokenizer.id_of("<|return|>")
    assert (by_default.stop_ids, by_default.stop_ids_inferred) == ({returned, engine_id}, {engine_id})
    assert (by_file.stop_ids, by_file.stop_ids_inferred) == ({returned}, frozenset())
    assert (by_engine.stop_ids, by_engine.stop_ids_inferred) == ({returned, engine_id}, frozenset())


@pytest.mark.families
def test_a_model_with_a_template_for_tools_uses_it_for_requests_with_tools(
    family_files: Callable[[str], ModelFiles],
) -> None:
    files = msgspec.structs.replace(family_files("qwen2.5"), tool_use_template=family_files("qwen3").chat_template)
    model = serve(files, model="m")
    assert model.for_tools(()) is model
    assert model.for_tools(("{}",)).template.source == family_files("qwen3").chat_template


@pytest.mark.families
def test_a_model_without_a_template_is_refused_with_the_remedy(family_files: Callable[[str], ModelFiles]) -> None:
    files = msgspec.structs.replace(family_files("qwen3"), chat_template="")
    with pytest.raises(
        ModelFilesError, match=r"The model `m` has no chat template\. Give one with `--template FILE`\."
    ):
        serve(files, model="m")
