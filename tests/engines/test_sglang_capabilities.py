from __future__ import annotations

import pytest

from turnstile.engines.base import ENFORCED
from turnstile.engines.sglang_capabilities import Found, capabilities_of, missing_of
from turnstile.engines.sglang_probe import Findings
from turnstile.engines.sglang_shapes import READ_VERSION, ModelEntry, ModelInfo, Models, ServerInfo
from turnstile.generation import LogprobsMode

BEST = {
    "version": READ_VERSION,
    "incremental_streaming_output": True,
    "enable_deterministic_inference": True,
    "grammar_backend": "xgrammar",
}


def found(mode=LogprobsMode.TEMPERATURE, echoes=True, sees=True, parser="hermes", **server):
    model = ModelInfo("org/model", True, "model", sees, None, parser)
    models = Models((ModelEntry("model", None, 8192), ModelEntry("adapter", "model", None)))
    return Found(model, ServerInfo(**(BEST | server)), models, Findings(mode, echoes))


def test_nothing_is_missing_from_a_server_with_every_flag():
    assert missing_of(found()) == ()


@pytest.mark.parametrize(
    ("changes", "what", "remedy"),
    [
        ({"version": "0.4.9"}, "known version (0.4.9)", f"Serve with sglang {READ_VERSION}"),
        ({"echoes": False}, "echo of prompt ids", "Serve with a version that has `return_prompt_token_ids`"),
        (
            {"parser": None},
            "its own parsers",
            "--tool-call-parser NAME and --reasoning-parser NAME",
        ),
        ({"skip_tokenizer_init": True}, "tokenizer of the engine", "Leave --skip-tokenizer-init out"),
        (
            {"mode": LogprobsMode.UNKNOWN},
            "meaning of log-probabilities",
            "Serve the trained model: a freshly made one is too flat to measure",
        ),
        (
            {"mode": LogprobsMode.RAW},
            "log-probabilities at the temperature of sampling",
            "Leave SGLANG_RETURN_ORIGINAL_LOGPROB out of its environment",
        ),
        ({"incremental_streaming_output": False}, "incremental stream", "--incremental-streaming-output"),
        ({"allow_auto_truncate": True}, "refusal of prompts that are too long", "Leave --allow-auto-truncate out"),
        ({"enable_deterministic_inference": False}, "seeds", "--enable-deterministic-inference"),
        ({"grammar_backend": "none"}, ENFORCED, "--grammar-backend xgrammar"),
        ({"grammar_backend": "outlines"}, ENFORCED, "--grammar-backend xgrammar"),
    ],
)
def test_each_thing_that_is_missing_is_named_with_its_flag(changes, what, remedy):
    assert [(each.what, each.remedy) for each in missing_of(found(**changes))] == [(what, remedy)]


def test_adapters_are_served_names_and_have_no_window_of_their_own():
    said = capabilities_of(found())
    assert (said.models, said.context_length) == (("model", "adapter"), 8192)


@pytest.mark.parametrize(
    ("changes", "images"),
    [
        ({}, "collapsed"),
        ({"sees": False}, "none"),
        ({"echoes": False}, "none"),
        ({"language_model_only": True}, "none"),
    ],
)
def test_images_are_taken_only_where_the_echo_shows_what_became_of_them(changes, images):
    assert capabilities_of(found(**changes)).images == images


@pytest.mark.parametrize(
    ("backend", "constraints"),
    [
        ("xgrammar", {"schema", "grammar"}),
        ("llguidance", {"schema", "grammar"}),
        ("outlines", {"schema"}),
        (None, set()),
    ],
)
def test_what_is_enforced_is_what_the_grammar_backend_can(backend, constraints):
    assert capabilities_of(found(grammar_backend=backend)).constraints == constraints


def test_a_seed_is_honoured_only_by_deterministic_inference():
    assert "seed" in capabilities_of(found()).honours
    assert "seed" not in capabilities_of(found(enable_deterministic_inference=False)).honours


@pytest.mark.parametrize(("parser", "reads"), [("hermes", True), (None, False)])
def test_answers_are_read_by_a_server_that_has_a_parser(parser, reads):
    assert capabilities_of(found(parser=parser)).reads_answers is reads


def test_what_it_can_is_shown_beside_what_it_cannot():
    assert [(each.what, each.how) for each in capabilities_of(found()).present] == [
        ("token ids in and out", "/generate, streamed"),
        ("stop token", "among the ids, compared in each answer"),
        ("weight versions", "in each answer, for each token"),
        ("prompt ids echoed", "compared before a token is told"),
        ("log-probabilities", "at the temperature of sampling, before top-p, top-k and min-p"),
        (ENFORCED, "by xgrammar: grammar, schema"),
        ("its own parsers", "can be asked to read an answer, once it is whole"),
        ("images", "as they came, one placeholder each"),
    ]
    least = found(mode=LogprobsMode.UNKNOWN, echoes=False, parser=None, grammar_backend="none")
    assert [each.what for each in capabilities_of(least).present] == [
        "token ids in and out",
        "stop token",
        "weight versions",
    ]
