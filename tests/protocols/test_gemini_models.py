from __future__ import annotations

import json

import pytest

from turnstile.errors import CallerError
from turnstile.protocols.gemini_models import gemini_model_body, gemini_models_body, is_gemini_client

SMOL = {
    "name": "models/smol",
    "displayName": "smol",
    "version": "1",
    "supportedGenerationMethods": ["generateContent", "streamGenerateContent", "countTokens"],
}


def test_models_are_listed_as_google_lists_them():
    assert json.loads(gemini_models_body(["smol"])) == {"models": [SMOL]}
    assert json.loads(gemini_model_body(["smol"], "smol")) == SMOL


def test_another_model_is_not_found():
    with pytest.raises(CallerError) as caught:
        gemini_model_body(["smol"], "gemini-9")
    assert (caught.value.status, caught.value.code) == (404, "model_not_found")


@pytest.mark.parametrize(
    ("headers", "is_one"),
    [({}, False), ({"x-api-key": "k"}, False), ({"x-goog-api-key": "k"}, True), ({"x-goog-api-client": "c"}, True)],
)
def test_a_client_of_google_is_known_by_its_headers(headers, is_one):
    assert is_gemini_client(headers) is is_one
