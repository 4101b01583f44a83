"""From what was seen of a vLLM server to what it can do, and to what each missing thing costs."""

from __future__ import annotations

from collections.abc import Iterator

from turnstile.engines.base import ENFORCED, WINDOW, Capabilities, Missing, Present
from turnstile.engines.vllm_probe import Found, Opened
from turnstile.generation import Draw, LogprobsMode

_HONOURED = frozenset(Draw.__struct_fields__)
_MOST_ALTERNATIVES = 20
_PARSER_FLAGS = "Start vLLM with --enable-auto-tool-choice --tool-call-parser NAME, and --reasoning-parser NAME"
_SCALE_OUT = "Start vLLM with --enable-scale-out"


def capabilities(found: Found) -> Capabilities:
    """What the server can do."""
    return Capabilities(
        engine="vllm",
        version=found.version,
        models=found.models,
        context_length=found.entry.max_model_len,
        concurrency=None,
        vocab_size=None,
        chat_template="",
        honours=_HONOURED,
        constraints=_constraints(found),
        max_top_logprobs=found.max_top_logprobs,
        echoes_prompt_ids="ids",
        images="collapsed" if found.images else "none",
        missing=tuple(_missing(found)),
        present=tuple(_present(found)),
        reads_answers=reads_answers(found),
    )


def reads_answers(found: Found) -> bool:
    """Whether its parsers can be asked to read the answer to ids."""
    return found.parses and (found.chat is Opened.HONOURED or found.derenders)


def _constraints(found: Found) -> frozenset[str]:
    enforced = {"schema", "grammar"} if found.constrains else set[str]()
    forces = found.parses and found.chat is Opened.HONOURED
    return frozenset(enforced | {"calls"} if forces else enforced)


def _present(found: Found) -> Iterator[Present]:
    doors = (
        ("/inference/v1/generate", found.generate),
        ("/v1/completions", found.completions),
        ("chat with the prompt's ids", found.chat),
    )
    opened = [name for name, state in doors if state is Opened.HONOURED]
    yield Present("token ids in and out", ", ".join(opened))
    yield Present("prompt ids echoed", "compared in each answer")
    if found.measured is not LogprobsMode.UNKNOWN:
        yield Present("log-probabilities", _MEANINGS[found.measured])
    if found.stop_in_ids:
        yield Present("stop token", "among the ids")
    if found.constrains:
        yield Present(ENFORCED, "hold from the first token on")
    if reads_answers(found):
        yield Present("its own parsers", "can be asked to read an answer")
    if found.has_spans:
        yield Present("weight versions", "in each answer, for each token")
    elif found.has_weight_route:
        yield Present("weight versions", "asked for before and after an answer")
    if found.images:
        yield Present("images", "as they came, one placeholder each")
    if found.entry.max_model_len is not None:
        yield Present(WINDOW, f"{found.entry.max_model_len} tokens")


_MEANINGS = {
    LogprobsMode.RAW: "the model's own, before temperature and filters (raw_logprobs)",
    LogprobsMode.PROCESSED: "those that were sampled from (processed_logprobs)",
}


def _missing(found: Found) -> Iterator[Missing]:
    if found.generate is not Opened.HONOURED:
        yield Missing("/inference/v1/generate", "No images, and no weight versions in answers", _SCALE_OUT)
    if found.measured is LogprobsMode.RAW:
        yield Missing(
            "log-probabilities that were sampled from",
            "The recorded ones are right for training at temperature 1 without filters only",
            "Start vLLM with --logprobs-mode processed_logprobs",
        )
    elif found.measured is LogprobsMode.UNKNOWN:
        yield Missing(
            "meaning of log-probabilities",
            "It could not be measured, so each call is recorded with mode `unknown`",
            "Start vLLM with --logprobs-mode processed_logprobs and --max-logprobs 20",
        )
    yield from _missing_readings(found)
    if not found.stop_in_ids:
        yield Missing("stop token among the ids", "Answers that end by themselves count as incomplete", "")
    if not found.has_spans and not found.has_weight_route:
        yield Missing(
            "weight version",
            "Calls are recorded with the version that POST /policy announced, or none",
            f"{_SCALE_OUT}, or set VLLM_SERVER_DEV_MODE=1 for it",
        )
    if found.max_top_logprobs < _MOST_ALTERNATIVES:
        yield Missing(
            "alternatives",
            f"`top_logprobs` above {found.max_top_logprobs} is refused",
            f"Start vLLM with --max-logprobs {_MOST_ALTERNATIVES}",
        )


def _missing_readings(found: Found) -> Iterator[Missing]:
    if not reads_answers(found):
        yield Missing(
            "its own parsers",
            "Tool calls in a format that Turnstile does not know stay text",
            _PARSER_FLAGS if not found.parses else "Use vLLM 0.32 or later, or --enable-scale-out",
        )
    if not found.constrains:
        yield Missing(
            ENFORCED,
            "`response_format` and required tools are refused: they would wait for the end of the reasoning",
            "" if found.generate is Opened.HONOURED else _SCALE_OUT,
        )
