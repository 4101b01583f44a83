"""What a token server really does, asked with three small requests before anything is recorded.

What its log-probabilities are of is in each answer; here that is measured. A draw at a low temperature from a nucleus
of one id takes the likeliest id, like one at temperature 0. Its number is the same there if it is the model's own,
nearly 0 if the filter is in it, and in between if the temperature is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from turnstile.engines.prompt_json import ids_json
from turnstile.engines.token_server_shapes import Event, Info, Request, broken, natural_logs, refusal, written
from turnstile.generation import LogprobsMode
from turnstile.tokens import IdRun

_LENGTH = 8
_COLD = 0.5
_NARROWEST = 1e-6
_EXACT = 1e-6
"""Differences below this one are rounding."""

Ask = Callable[[bytes], Awaitable[Event]]
"""A `/generate` that is not streamed."""


class Findings(msgspec.Struct, frozen=True):
    """What the probe found."""

    mode: LogprobsMode
    """TEMPERATURE, RAW, PROCESSED, or UNKNOWN where it could not be measured."""
    echoes_ids: bool
    """Whether the ids that it ran can be compared, not only counted."""
    tells_weights: bool
    """Whether an answer says which weights sampled it."""


async def probe(ask: Ask, info: Info) -> Findings:
    """See whether prompts are echoed, stop ids are kept and versions told, and measure log-probabilities.

    Raises: EngineError `engine_broken` if a stop id is left out or numbers are not what the engine says that they are;
    what `ask` raises.
    """
    ids = list(range(min(_LENGTH, info.vocab_size)))
    if info.images is not None:
        ids = [each for each in ids if each != info.images.placeholder_id]
    plain = await _asked(ask, ids, Request(temperature=0.0, max_tokens=1, stop_ids=(), stream=False))
    token_id = _only(plain)
    stop = Request(temperature=0.0, max_tokens=2, stop_ids=(token_id,), stream=False)
    stopped = await _asked(ask, ids, stop)
    if stopped.output_ids != [token_id] or stopped.finish_reason != "stop":
        raise broken(f"the stop id {token_id} did not end an answer as its last id ({stopped.output_ids})")
    mode = LogprobsMode.UNKNOWN
    if "top_p" in info.honours:
        cold = Request(temperature=_COLD, max_tokens=1, stop_ids=(), stream=False, top_p=_NARROWEST)
        mode = _measured(plain, await _asked(ask, ids, cold))
    return Findings(mode, _echoes(plain, IdRun.of(ids)), bool(_label(plain)))


async def _asked(ask: Ask, ids: list[int], request: Request) -> Event:
    event = await ask(written(ids_json(ids), request))
    if event.error is not None:
        raise refusal(200, event.error)
    return event


def _only(event: Event) -> int:
    if len(event.output_ids) != 1:
        raise broken(f"`output_ids` has {len(event.output_ids)} ids, and one was asked for")
    return event.output_ids[0]


def _echoes(event: Event, sent_T: IdRun) -> bool:
    return event.prompt_ids == sent_T.tolist() or event.prompt_sha256 == sent_T.sha256()


def _label(event: Event) -> str:
    return str(event.weight_version if event.weight_version is not None else "") or "".join(
        str(each.version) for each in event.weight_versions
    )


def _measured(plain: Event, cold: Event) -> LogprobsMode:
    """What the numbers of a likeliest id are of, at temperature 0 and at a lower one than 1 without all other ids."""
    (own,), (cooled,) = (natural_logs(each.output_ids, each.logprobs) for each in (plain, cold))
    if own is None or cooled is None or plain.output_ids != cold.output_ids or own > -_EXACT:
        return LogprobsMode.UNKNOWN
    if cooled > -_EXACT:
        found = LogprobsMode.PROCESSED
    elif abs(cooled - own) < _EXACT:
        found = LogprobsMode.RAW
    else:
        found = LogprobsMode.TEMPERATURE
    told = cold.logprobs_mode
    if told in tuple(LogprobsMode) and told not in (found, LogprobsMode.UNKNOWN):
        raise broken(f"`logprobs_mode` says {told}, and the numbers were measured to be {found}")
    return found
