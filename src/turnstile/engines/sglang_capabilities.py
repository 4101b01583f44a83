"""What an SGLang server can do as it was started, and what each thing that it cannot do costs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import msgspec

from turnstile.engines.base import ENFORCED, Capabilities, Missing, Present
from turnstile.engines.sglang_probe import Findings
from turnstile.engines.sglang_shapes import READ_VERSION, ModelInfo, Models, ServerInfo
from turnstile.generation import Draw, LogprobsMode

MAX_TOP_LOGPROBS = 20
"""As in OpenAI's API; the server would give more."""
_GRAMMARS = {
    "xgrammar": frozenset({"schema", "grammar"}),
    "llguidance": frozenset({"schema", "grammar"}),
    "outlines": frozenset({"schema"}),
}
"""What each `--grammar-backend` enforces (`srt/constrained/`); outlines has no EBNF."""


_MEANINGS = {
    LogprobsMode.TEMPERATURE: "at the temperature of sampling, before top-p, top-k and min-p",
    LogprobsMode.RAW: "the model's own, before temperature and filters",
}


class Found(msgspec.Struct, frozen=True):
    """All that a server said and showed at start."""

    model: ModelInfo
    server: ServerInfo
    models: Models
    findings: Findings

    @property
    def sees(self) -> bool:
        """Whether it can be given images, and shows what became of them."""
        takes = self.model.has_image_understanding and not self.server.language_model_only
        return takes and self.findings.echoes_ids


def capabilities_of(found: Found) -> Capabilities:
    """What of it counts for a request."""
    own = [each for each in found.models.data if each.parent is None]
    names = tuple(each.id for each in found.models.data) or (found.model.served_model_name,)
    honours = frozenset(Draw.__struct_fields__) - {"affinity"}
    return Capabilities(
        engine="sglang",
        version=found.server.version,
        models=names,
        context_length=next((each.max_model_len for each in own), None),
        concurrency=found.server.max_running_requests,
        vocab_size=None,
        chat_template="",
        honours=honours if found.server.enable_deterministic_inference else honours - {"seed"},
        constraints=_GRAMMARS.get(found.server.grammar_backend or "", frozenset()),
        max_top_logprobs=MAX_TOP_LOGPROBS,
        echoes_prompt_ids="ids" if found.findings.echoes_ids else "count",
        images="collapsed" if found.sees else "none",
        missing=missing_of(found),
        present=tuple(_present(found)),
        reads_answers=bool(found.model.tool_call_parser),
    )


def _present(found: Found) -> Iterator[Present]:
    yield Present("token ids in and out", "/generate, streamed")
    yield Present("stop token", "among the ids, compared in each answer")
    yield Present("weight versions", "in each answer, for each token")
    if found.findings.echoes_ids:
        yield Present("prompt ids echoed", "compared before a token is told")
    if found.findings.mode in _MEANINGS:
        yield Present("log-probabilities", _MEANINGS[found.findings.mode])
    if backend := _GRAMMARS.get(found.server.grammar_backend or ""):
        yield Present(ENFORCED, f"by {found.server.grammar_backend}: {', '.join(sorted(backend))}")
    if found.model.tool_call_parser:
        yield Present("its own parsers", "can be asked to read an answer, once it is whole")
    if found.sees:
        yield Present("images", "as they came, one placeholder each")


def missing_of(found: Found) -> tuple[Missing, ...]:
    """What the server does not do or does not say, each with its flag."""
    lacking = (*_unproven(found), *_numbers(found.findings.mode), *_switched(found.server))
    return tuple(each for is_missing, each in lacking if is_missing)


_Judged: TypeAlias = tuple[bool, Missing]


def _unproven(found: Found) -> tuple[_Judged, ...]:
    version = found.server.version
    return (
        (
            version != READ_VERSION,
            Missing(
                f"known version ({version})",
                f"What it answers was read in the source of {READ_VERSION}: another form is refused, not guessed at",
                f"Serve with sglang {READ_VERSION}",
            ),
        ),
        (
            not found.findings.echoes_ids,
            Missing(
                "echo of prompt ids",
                "Only the number of ids that ran is checked, and images are refused",
                "Serve with a version that has `return_prompt_token_ids`",
            ),
        ),
        (
            not found.model.tool_call_parser,
            Missing(
                "its own parsers",
                "Tool calls in a format that Turnstile does not know cannot be read",
                "--tool-call-parser NAME and --reasoning-parser NAME",
            ),
        ),
        (
            found.server.skip_tokenizer_init,
            Missing(
                "tokenizer of the engine",
                "That it reads text as --tokenizer does is not checked at start",
                "Leave --skip-tokenizer-init out",
            ),
        ),
    )


def _numbers(mode: LogprobsMode) -> tuple[_Judged, ...]:
    return (
        (
            mode is LogprobsMode.UNKNOWN,
            Missing(
                "meaning of log-probabilities",
                "Whether they hold the temperature could not be measured; they are recorded as `unknown`",
                "Serve the trained model: a freshly made one is too flat to measure",
            ),
        ),
        (
            mode is LogprobsMode.RAW,
            Missing(
                "log-probabilities at the temperature of sampling",
                "At a temperature other than 1 the recorded numbers are not those of the distribution sampled from",
                "Leave SGLANG_RETURN_ORIGINAL_LOGPROB out of its environment",
            ),
        ),
    )


def _switched(server: ServerInfo) -> tuple[_Judged, ...]:
    backend = server.grammar_backend or "none"
    return (
        (
            not server.incremental_streaming_output,
            Missing(
                "incremental stream",
                "Each piece of an answer repeats the whole of it, so long answers reach clients in larger pieces",
                "--incremental-streaming-output",
            ),
        ),
        (
            server.allow_auto_truncate,
            Missing(
                "refusal of prompts that are too long",
                "They are cut without a word; such calls fail as `echo_mismatch`, not as `context_length_exceeded`",
                "Leave --allow-auto-truncate out",
            ),
        ),
        (
            not server.enable_deterministic_inference,
            Missing("seeds", "`seed` changes nothing", "--enable-deterministic-inference"),
        ),
        (
            "grammar" not in _GRAMMARS.get(backend, ()),
            Missing(
                ENFORCED,
                f"With the grammar backend `{backend}`, `tool_choice` `required` and JSON behind reasoning are refused",
                "--grammar-backend xgrammar",
            ),
        ),
    )
