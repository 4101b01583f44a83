from __future__ import annotations

import json

import pytest

from turnstile.templates.files import ModelFiles, ModelFilesError, StopSource, StopToken

TOKENIZER = "{}"


def config(**entries: object) -> str:
    return json.dumps(entries)


def test_a_model_folder_is_read_into_template_special_tokens_and_stops() -> None:
    files = ModelFiles.from_texts(
        TOKENIZER,
        config(
            bos_token={"content": "<s>", "lstrip": False}, eos_token="</s>", pad_token=None, chat_template="a", other=1
        ),
        None,
        config(eos_token_id=[2, 7], temperature=0.6),
    )
    assert files == ModelFiles(
        tokenizer_json=TOKENIZER,
        chat_template="a",
        special_tokens={"bos_token": "<s>", "eos_token": "</s>"},
        stop_tokens=(
            StopToken(2, StopSource.GENERATION_CONFIG),
            StopToken(7, StopSource.GENERATION_CONFIG),
            StopToken("</s>", StopSource.TOKENIZER_CONFIG),
        ),
    )


def test_a_folder_with_nothing_but_a_tokenizer_has_no_template_and_no_stops() -> None:
    assert ModelFiles.from_texts(TOKENIZER) == ModelFiles(TOKENIZER, "", {}, ())


def test_one_stop_id_may_stand_alone() -> None:
    files = ModelFiles.from_texts(TOKENIZER, generation_config_json=config(eos_token_id=5))
    assert files.stop_tokens == (StopToken(5, StopSource.GENERATION_CONFIG),)


def test_a_template_file_wins_over_the_one_in_the_configuration() -> None:
    assert ModelFiles.from_texts(TOKENIZER, config(chat_template="old"), "new").chat_template == "new"


def test_special_tokens_may_come_from_the_older_file_where_the_newer_has_none() -> None:
    files = ModelFiles.from_texts(
        TOKENIZER,
        config(bos_token="<new>"),
        special_tokens_map_json=config(bos_token="<old>", unk_token={"content": "<unk>"}),
    )
    assert files.special_tokens == {"bos_token": "<new>", "unk_token": "<unk>"}


@pytest.mark.parametrize(
    ("named", "without_tools", "with_tools"),
    [
        ([("default", "d"), ("tool_use", "t"), ("rag", "r")], "d", "t"),
        ([("tool_use", "t")], "t", "t"),
        ([("default", "d")], "d", "d"),
    ],
)
def test_of_named_templates_the_one_for_tools_serves_requests_with_tools(
    named: list[tuple[str, str]], without_tools: str, with_tools: str
) -> None:
    entry = [{"name": name, "template": template} for name, template in named]
    files = ModelFiles.from_texts(TOKENIZER, config(chat_template=entry))
    assert (files.template_for(()), files.template_for(("{}",))) == (without_tools, with_tools)


@pytest.mark.parametrize(
    ("tokenizer_config", "generation_config", "said"),
    [
        ("{", "{}", "tokenizer_config.json is not JSON"),
        ("[" * 100_000, "{}", "tokenizer_config.json is not JSON"),
        ("[]", "{}", "tokenizer_config.json holds no JSON object"),
        ('{"chat_template": 3}', "{}", "`chat_template`"),
        ('{"chat_template": [{"name": "default"}]}', "{}", "`chat_template`"),
        ('{"bos_token": 1}', "{}", "`bos_token`"),
        ("{}", '{"eos_token_id": ["</s>"]}', "`eos_token_id`"),
        ("{}", '{"eos_token_id": true}', "`eos_token_id`"),
    ],
)
def test_files_of_another_form_are_refused_by_name(tokenizer_config: str, generation_config: str, said: str) -> None:
    with pytest.raises(ModelFilesError) as raised:
        ModelFiles.from_texts(TOKENIZER, tokenizer_config, None, generation_config)
    assert said in raised.value.problem
    assert raised.value.remedy
