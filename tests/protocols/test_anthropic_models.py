from __future__ import annotations

import json

import pytest

from turnstile.errors import CallerError
from turnstile.protocols.anthropic_models import anthropic_model_body, anthropic_models_body, is_anthropic_client


def test_the_sdk_lists_the_served_models(anthropic_answered):
    client = anthropic_answered(anthropic_models_body(("a", "b")), "application/json")
    assert [model.id for model in client.models.list()] == ["a", "b"]


def test_the_sdk_retrieves_a_model(anthropic_answered):
    model = anthropic_answered(anthropic_model_body(("a",), "a"), "application/json").models.retrieve("a")
    assert (model.id, model.display_name, model.type, model.lifecycle) == ("a", "a", "model", "active")


def test_a_page_says_where_it_begins_and_ends():
    assert json.loads(anthropic_models_body(()))["first_id"] is None
    assert [json.loads(anthropic_models_body(("a", "b")))[name] for name in ("first_id", "last_id", "has_more")] == [
        "a", "b", False,
    ]  # fmt: skip


def test_a_model_that_is_not_served_is_not_found():
    with pytest.raises(CallerError, match="claude-9"):
        anthropic_model_body(("a",), "claude-9")


def test_anthropics_clients_are_known_by_the_version_that_they_must_send():
    assert is_anthropic_client({"anthropic-version": "2023-06-01"})
    assert not is_anthropic_client({"authorization": "Bearer x"})
