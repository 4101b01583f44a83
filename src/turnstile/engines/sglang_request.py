"""The bodies sent to SGLang's `/generate`: ids in, and every sampling parameter said outright.

Source: sglang 0.5.23, `srt/managers/io_struct.py` (`GenerateReqInput`), `srt/sampling/sampling_params.py`
(`SamplingParams`, which refuses a key that it does not know) and `srt/managers/tokenizer_manager.py`: what a request
leaves out is taken from the server's `preferred_sampling_params`, so nothing is left out.
"""

from __future__ import annotations

import base64
from typing import assert_never

import msgspec

from turnstile.conversation import Media
from turnstile.generation import Constraint, Draw, Free, GrammarConstraint, LogprobsMode, SchemaConstraint

GREEDY_BELOW = 1e-6
"""At temperatures below this one it takes the likeliest token and works out the numbers at temperature 1
(`SamplingParams.__post_init__`)."""
STOP_STRINGS = 32
"""`MAX_STOP_COUNT`: more are refused. Further ones are still found by Turnstile in what was sampled."""
_ECHOED_IDS_PER_TOKEN = 1000
_CUMULATIVE_EVENTS = 256


class Sampling(msgspec.Struct, frozen=True):
    """`sampling_params`: all fields of 0.5.23 that a request may set."""

    max_new_tokens: int | None
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    frequency_penalty: float
    presence_penalty: float
    repetition_penalty: float
    logit_bias: dict[str, float] | None
    stop: tuple[str, ...] | None
    stop_token_ids: tuple[int, ...] | None
    sampling_seed: int | None
    stream_interval: int
    json_schema: str | None = None
    ebnf: str | None = None
    regex: str | None = None
    structural_tag: str | None = None
    stop_regex: str | None = None
    custom_params: None = None
    min_new_tokens: int = 0
    n: int = 1
    """Choices are drawn in requests of their own, so that each has its own stream and its own end."""
    ignore_eos: bool = False
    """It would switch off `stop_token_ids` too (`Req._check_token_based_finish`)."""
    skip_special_tokens: bool = False
    spaces_between_special_tokens: bool = False
    no_stop_trim: bool = True


class Request(msgspec.Struct, frozen=True):
    """All of a body but its ids."""

    rid: str
    sampling_params: Sampling
    top_logprobs_num: int
    image_data: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    token_ids_logprob: tuple[int, ...] | msgspec.UnsetType = msgspec.UNSET
    stream: bool = True
    return_logprob: bool = True
    logprob_start_len: int = -1
    """-1: of the answer only."""
    return_prompt_token_ids: bool = True


def sampling_of(draw: Draw, seed: int, stream_interval: int) -> Sampling:
    """A draw in SGLang's words: 0 tokens of `top_k` are its -1, no limit is its null."""
    return _constrained(
        Sampling(
            max_new_tokens=draw.max_tokens,
            temperature=max(0.0, draw.temperature),
            top_p=draw.top_p,
            top_k=draw.top_k or -1,
            min_p=draw.min_p,
            frequency_penalty=draw.frequency_penalty,
            presence_penalty=draw.presence_penalty,
            repetition_penalty=draw.repetition_penalty,
            logit_bias={str(token): bias for token, bias in draw.logit_bias} or None,
            stop=draw.stop[:STOP_STRINGS] or None,
            stop_token_ids=tuple(sorted(draw.stop_ids)) or None,
            sampling_seed=seed,
            stream_interval=stream_interval,
        ),
        draw.constraint,
    )


def written(ids: bytes, request: Request) -> bytes:
    """The body. `ids` is the inside of a JSON array."""
    return b'{"input_ids":[' + ids + b"]," + msgspec.json.encode(request)[1:]


def image_data(media: tuple[Media, ...]) -> tuple[str, ...]:
    """Images as data URLs: any other text could be taken for a file's path (`srt/utils/common.py`, `load_image`)."""
    return tuple(f"data:{each.media_type};base64,{base64.b64encode(each.data).decode()}" for each in media)


def stream_interval(prompt_length: int, repeated_tokens: int) -> int:
    """How many sampled tokens go into one event, behind the first.

    Each event repeats the ids of the prompt, and on a server that streams cumulatively all that was sampled. So long
    prompts, and long answers on such a server, come in larger pieces: an event then costs no more than its tokens.

    Args:
        prompt_length: in ids.
        repeated_tokens: how long an answer may become whose every event repeats it; 0 if no event does.
    """
    return max(1, prompt_length // _ECHOED_IDS_PER_TOKEN, repeated_tokens // _CUMULATIVE_EVENTS)


def logprobs_mode(draw: Draw, of_server: LogprobsMode) -> LogprobsMode:
    """Which distribution the numbers of a draw belong to.

    Penalties, bias and grammar are applied to the logits before anything else, so they are in every number; the
    temperature is in it unless the server was told otherwise; top-p, top-k and min-p never are
    (`srt/layers/sampler.py`, `Sampler.forward`).

    Args:
        draw: what is sampled.
        of_server: TEMPERATURE, RAW (`SGLANG_RETURN_ORIGINAL_LOGPROB`) or UNKNOWN, as measured.
    """
    reweighted = (
        draw.presence_penalty != 0.0
        or draw.frequency_penalty != 0.0
        or draw.repetition_penalty != 1.0
        or bool(draw.logit_bias)
        or not isinstance(draw.constraint, Free)
    )
    filtered = draw.top_p != 1.0 or draw.top_k != 0 or draw.min_p != 0.0
    if of_server is LogprobsMode.RAW or (of_server is not LogprobsMode.UNKNOWN and draw.temperature < GREEDY_BELOW):
        return LogprobsMode.UNKNOWN if reweighted else LogprobsMode.RAW
    if of_server is LogprobsMode.TEMPERATURE and reweighted:
        return LogprobsMode.UNKNOWN if filtered else LogprobsMode.PROCESSED
    return of_server


def _constrained(sampling: Sampling, constraint: Constraint) -> Sampling:
    match constraint:
        case Free():
            return sampling
        case GrammarConstraint(gbnf=gbnf):
            # xgrammar's EBNF and llguidance's reading of it are llama.cpp's GBNF.
            return msgspec.structs.replace(sampling, ebnf=gbnf)
        case SchemaConstraint(schema=schema):
            return msgspec.structs.replace(sampling, json_schema=schema)
        case _:
            assert_never(constraint)
