"""What a running SGLang really does, asked with three one-token requests before anything is recorded.

Nothing that the server says tells whether its numbers hold the temperature (`SGLANG_RETURN_ORIGINAL_LOGPROB` is a
variable of its environment), so that is measured: the difference of two log-probabilities in one place is the
difference of two logits divided by the temperature that is in them, whatever the rest of the vocabulary does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from turnstile.engines.prompt_json import ids_json
from turnstile.engines.sglang_answer import natural_log
from turnstile.engines.sglang_request import Request, sampling_of, written
from turnstile.engines.sglang_shapes import Event, LogprobEntry, broken
from turnstile.generation import Draw, LogprobsMode

_IDS = [1, 2, 3, 4, 5, 6, 7, 8]
_WEIGHED = tuple(range(1, 33))
"""Any model has these ids; what they mean plays no part."""
_HOT = 2.0
_FLATTEST = 0.1
"""Differences below this one are too small to be told from the noise of a float16 model."""
_TOLERANCE = 0.15

Ask = Callable[[bytes], Awaitable[Event]]
"""A `/generate` that is not streamed."""


class Findings(msgspec.Struct, frozen=True):
    """What the probe found."""

    mode: LogprobsMode
    """Of a draw with nothing but a temperature: TEMPERATURE, RAW or UNKNOWN."""
    echoes_ids: bool


async def probe(ask: Ask, rid: Callable[[], str]) -> Findings:
    """Measure what log-probabilities mean, and see whether prompts are echoed and stop ids are kept.

    Raises: EngineError `engine_broken` if the server leaves a sampled stop id out of its ids; what `ask` raises.
    """
    first = await ask(_body(rid(), Draw(temperature=1.0, max_tokens=1, top_logprobs=1), _WEIGHED))
    hot = await ask(_body(rid(), Draw(temperature=_HOT, max_tokens=1), _WEIGHED))
    await _check_stop(ask, rid(), _rows(first, "output_top_logprobs")[0].token_id)
    mode = _mode(_rows(first, "output_token_ids_logprobs"), _rows(hot, "output_token_ids_logprobs"))
    return Findings(mode, first.prompt_token_ids == _IDS)


def _body(rid: str, draw: Draw, weighed: tuple[int, ...] = ()) -> bytes:
    request = Request(
        rid=rid,
        sampling_params=sampling_of(draw, seed=0, stream_interval=1),
        top_logprobs_num=draw.top_logprobs,
        token_ids_logprob=weighed or msgspec.UNSET,
        stream=False,
    )
    return written(ids_json(_IDS), request)


def _rows(event: Event, field: str) -> list[LogprobEntry]:
    rows = None if event.meta_info is None else getattr(event.meta_info, field)
    if not rows or not rows[0]:
        raise broken(f"`meta_info.{field}` is empty, and it was asked for")
    return rows[0]


def _mode(plain: list[LogprobEntry], hot: list[LogprobEntry]) -> LogprobsMode:
    at_one = {each.token_id: value for each in plain if (value := natural_log(each.logprob)) is not None}
    heated = {each.token_id: value for each in hot if (value := natural_log(each.logprob)) is not None}
    known = sorted(at_one.keys() & heated.keys(), key=at_one.__getitem__)
    if not known or (spread := at_one[known[-1]] - at_one[known[0]]) < _FLATTEST:
        return LogprobsMode.UNKNOWN
    ratio = (heated[known[-1]] - heated[known[0]]) / spread
    for mode, expected in ((LogprobsMode.TEMPERATURE, 1.0 / _HOT), (LogprobsMode.RAW, 1.0)):
        if abs(ratio - expected) < _TOLERANCE:
            return mode
    return LogprobsMode.UNKNOWN


async def _check_stop(ask: Ask, rid: str, stop_id: int) -> None:
    """Sample the likeliest id as a stop: where it ends the answer, it has to be in it."""
    draw = Draw(temperature=0.0, max_tokens=2, stop_ids=frozenset({stop_id}))
    stopped = await ask(_body(rid, draw))
    reason = stopped.meta_info and stopped.meta_info.finish_reason
    if reason and reason.type == "stop" and (stopped.output_ids or [None])[-1] != reason.matched:
        raise broken(f"the stop id {reason.matched} ended an answer and is not in its `output_ids`")
