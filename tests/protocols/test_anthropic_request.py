from __future__ import annotations

import pytest

from turnstile.errors import CallerError
from turnstile.protocols.anthropic_request import read_request


def test_members_that_are_not_known_are_named_and_change_nothing(messages_request):
    plain, _ = read_request(messages_request().body)
    request, unknown = read_request(messages_request(context_management={"edits": []}, zeta=[1]).body)
    assert (request, unknown) == (plain, ("context_management", "zeta"))


@pytest.mark.parametrize("name", ["metadata", "service_tier", "betas", "cache_control", "speed", "inference_geo"])
def test_what_changes_nothing_about_sampling_is_accepted_without_a_word(messages_request, name):
    assert read_request(messages_request(**{name: {"x": 1}}).body)[1] == ()


@pytest.mark.parametrize("name", ["container", "mcp_servers", "fallbacks", "thread", "compaction"])
def test_what_would_change_the_answer_is_refused_by_name_unless_it_asks_for_nothing(messages_request, name):
    assert read_request(messages_request(**{name: None}).body)[1] == ()
    with pytest.raises(CallerError) as caught:
        read_request(messages_request(**{name: [{"a": 1}]}).body)
    assert (caught.value.code, caught.value.param) == ("unsupported_parameter", name)


def test_an_empty_list_of_servers_asks_for_nothing(messages_request):
    assert read_request(messages_request(mcp_servers=[], fallbacks=[]).body)[1] == ()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_tokens", 0), ("max_tokens", "9"), ("max_tokens", 1.5), ("temperature", 3), ("temperature", "hot"),
        ("top_p", 1.1), ("top_k", -2), ("stop_sequences", [""]), ("stop_sequences", "x"), ("system", 7),
        ("tools", {}), ("stream", "yes"), ("tool_choice", "auto"), ("thinking", "on"), ("messages", []),
        ("model", ""), ("output_config", []),
    ],
)  # fmt: skip
def test_a_value_of_the_wrong_kind_is_refused_by_field(messages_refusal, field, value):
    status, code, param, _ = messages_refusal(**{field: value})
    assert (status, code) == (400, "invalid_value")
    assert param.startswith(field)


@pytest.mark.parametrize("field", ["model", "messages", "max_tokens"])
def test_a_field_that_must_be_there_is_asked_for(messages_refusal, field):
    assert messages_refusal(**{field: ...})[:3] == (400, "missing_required_parameter", field)
