from __future__ import annotations

import pytest

from turnstile.errors import CallerError
from turnstile.protocols.models import check_model, model_body, models_body


def test_the_official_client_lists_the_models_in_order(answered_with):
    client = answered_with(models_body(("b", "a"), 1_700_000_000), "application/json")
    models = client.models.list().data
    assert [(model.id, model.object, model.created, model.owned_by) for model in models] == [
        ("b", "model", 1_700_000_000, "turnstile"),
        ("a", "model", 1_700_000_000, "turnstile"),
    ]


def test_the_official_client_reads_one_model(answered_with):
    client = answered_with(model_body(("b", "org/a"), "org/a", 5), "application/json")
    model = client.models.retrieve("org/a")
    assert (model.id, model.object, model.created) == ("org/a", "model", 5)


def test_a_model_that_is_not_served_is_not_found():
    with pytest.raises(CallerError) as caught:
        model_body(("a", "b"), "gpt-9")
    error = caught.value
    assert (error.status, error.code, error.param) == (404, "model_not_found", "model")
    assert str(error) == (
        "The model `gpt-9` does not exist here. Ask for `a` or `b`, or serve it under this name with --model."
    )


def test_a_served_model_passes():
    check_model(("a", "b"), "b")
