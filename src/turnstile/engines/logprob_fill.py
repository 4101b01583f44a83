"""The log-probability of a sampled token for which llama.cpp gives none, asked for behind the same ids.

The server says nothing of a token after which its text ends inside a character, so it is made to sample a letter
in that place, and the number is worked out from what it then says of the letter and of the likeliest tokens.
Exact for the model's own distribution and for softmax(logits / temperature), which are the ones recorded.

Source: docs/decisions/0003-llamacpp-exact-streaming.md.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence

from turnstile.engines.llamacpp_request import RequestBody
from turnstile.engines.llamacpp_shapes import Candidate, Completion, ProbabilityEntry, broken
from turnstile.tokens import Vocabulary

Complete = Callable[[bytes], Awaitable[Completion]]

SHORT_ROW = 256
"""How many of the likeliest tokens are asked for first: 30 ms, where the whole row of 49k takes 900 ms."""
_TILTED_SHARE = 0.9
"""How likely the letter is made: likely enough to be drawn, and far enough from 1 for float32."""
_TILTED_TRIES = 4
_LEAST_LOGPROB = -80.0
"""Below this, float32 probabilities lose digits."""


class Letter:
    """An id whose text is one ASCII letter, looked up once a tokenizer."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._found: int | None = None

    @property
    def vocab_size(self) -> int:
        """How many ids there are."""
        return self._vocabulary.size

    @property
    def token_id(self) -> int:
        """The id. Raises: EngineError if the tokenizer has none."""
        if self._found is None:
            matching = (at for at in range(self._vocabulary.size) if self._vocabulary.token_bytes(at) == b"a")
            self._found = next(matching, None)
            if self._found is None:
                raise broken("its tokenizer has no token for the letter a")
        return self._found


class Refill:
    """Asks for missing numbers of one draw."""

    def __init__(self, complete: Complete, body: RequestBody, letter: Letter) -> None:
        self._complete = complete
        self._body = body
        self._letter = letter

    async def raw(self, before_S: list[int], token: int) -> float | None:
        """The model's own log-probability of `token` behind the prompt and `before_S`."""
        for entries in (SHORT_ROW, self._letter.vocab_size):
            row = await self._row(before_S, entries)
            value = _of(row.top_logprobs, token) if row else None
            if value is not None:
                return min(0.0, value)
        return None

    async def at_temperature(self, before_S: list[int], token: int, temperature: float) -> float | None:
        """The log-probability of `token` under softmax(logits / temperature)."""
        row = await self._row(before_S, SHORT_ROW)
        if row is not None:
            value = await self._by_letter(before_S, token, temperature, row)
            if value is not None:
                return value
        row = await self._row(before_S, self._letter.vocab_size)
        return whole_row(row.top_logprobs, token, temperature, self._letter.vocab_size) if row else None

    async def _row(self, before_S: list[int], entries: int) -> ProbabilityEntry | None:
        answer = await self._complete(self._body.row(before_S, self._letter.token_id, entries))
        return _entry_of(answer, self._letter.token_id)

    async def _by_letter(
        self, before_S: list[int], token: int, temperature: float, row: ProbabilityEntry
    ) -> float | None:
        own = _of(row.top_logprobs, token)
        letter = row.logprob
        if own is None or letter is None or letter < _LEAST_LOGPROB:
            return None
        bias = tilt(row.top_logprobs, self._letter.token_id, letter, temperature)
        for attempt in range(_TILTED_TRIES):
            answer = await self._complete(self._body.tilted(before_S, self._letter.token_id, bias, attempt))
            entry = _entry_of(answer, self._letter.token_id)
            if entry is not None and entry.prob is not None and 0.0 < entry.prob < 1.0:
                value = untilted(entry.prob, bias, temperature) + (own - letter) / temperature
                return min(0.0, value)
        return None


def tilt(row: Sequence[Candidate], letter_id: int, letter: float, temperature: float) -> float:
    """The logit bias that makes a token of raw log-probability `letter` as likely as is wanted.

    A row that leaves out tokens makes it a little less likely than that.
    Shapes: row [K], the likeliest tokens; at least one of them is another token.
    """
    others = [e.logprob / temperature for e in row if e.id != letter_id and e.logprob is not None]
    return temperature * (math.log(_TILTED_SHARE / (1 - _TILTED_SHARE)) + _log_sum(others) - letter / temperature)


def untilted(prob: float, bias: float, temperature: float) -> float:
    """Log-probability without a logit bias, from the probability with it.

    A bias b multiplies the odds of its token by exp(b / temperature) and leaves the others' ratios as they are.
    """
    log_odds = math.log(prob) - math.log1p(-prob) - bias / temperature
    return log_odds - math.log1p(math.exp(log_odds)) if log_odds < 0 else -math.log1p(math.exp(-log_odds))


def whole_row(row: Sequence[Candidate], token: int, temperature: float, vocab_size: int) -> float | None:
    """Log-probability under softmax(logits / temperature), from raw log-probabilities of the whole vocabulary.

    The server sums in float32, so its numbers are off by one constant, which cancels here.
    None if the row leaves out a token. Shapes: row [vocab_size].
    """
    own = _of(row, token)
    if own is None or len(row) < vocab_size:
        return None
    return min(0.0, own / temperature - _log_sum([e.logprob / temperature for e in row if e.logprob is not None]))


def _log_sum(values: Sequence[float]) -> float:
    top = max(values)
    return top + math.log(math.fsum(math.exp(value - top) for value in values))


def _of(row: Sequence[Candidate], token: int) -> float | None:
    return next((entry.logprob for entry in row if entry.id == token), None)


def _entry_of(answer: Completion, token: int) -> ProbabilityEntry | None:
    entries = answer.completion_probabilities
    return entries[0] if len(entries) == 1 and entries[0].id == token else None
