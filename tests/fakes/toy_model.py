"""A language model of a few lines, whose numbers depend on all ids before, the less the farther they are.

It stands in for a model of transformers in `turnstile.reports.audit`, which asks it the same questions.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence as Ordered
from datetime import UTC, datetime
from typing import Any

from turnstile.reports.audit_run import Asked
from turnstile.tokens import IdRun, LogprobRun
from turnstile.trajectory.format import (
    CallInfo,
    HeadInfo,
    Rollout,
    SamplingInfo,
    Sequence,
    SequenceSegment,
    TokenCounts,
    UsageInfo,
)

VOCABULARY = 40
WIDTH = 6
NOW = datetime(2026, 12, 1, tzinfo=UTC)


class ToyRun:
    """Ids that have gone through the model."""

    def __init__(self, ids: Ordered[int], seed: int) -> None:
        state, self.rows = [0.0] * WIDTH, []
        for token_id in ids:
            state = [0.8 * each + math.sin(7.3 * token_id * (d + 1) + seed) for d, each in enumerate(state)]
            thought = [math.tanh(each) for each in state]
            self.rows.append(
                [1.5 * sum(t * math.cos(3.1 * v * (d + 2)) for d, t in enumerate(thought)) for v in range(VOCABULARY)]
            )

    def logprobs(self, asked: list[Asked]) -> list[float]:
        return [self._row(each)[each.target] for each in asked]

    def ids_near(self, asked: Asked, logprob: float, most: int) -> list[int]:
        row = self._row(asked)
        return sorted(range(VOCABULARY), key=lambda token_id: abs(row[token_id] - logprob))[:most]

    def _row(self, asked: Asked) -> list[float]:
        logits = [each / asked.temperature for each in self.rows[asked.row]]
        if asked.filter.top_k > 0:
            least = sorted(logits, reverse=True)[asked.filter.top_k - 1]
            logits = [each if each >= least else -math.inf for each in logits]
        if asked.kept:
            logits = [each if token_id in asked.kept else -math.inf for token_id, each in enumerate(logits)]
        whole = math.log(math.fsum(math.exp(each) for each in logits))
        return [each - whole for each in logits]


class ToyModel:
    """Runs sequences."""

    def __init__(self, seed: int = 1) -> None:
        self.seed = seed
        self.runs = 0

    def run(self, subject: Any, token_ids: IdRun, side: Any) -> ToyRun:
        self.runs += 1
        return ToyRun(token_ids.tolist(), self.seed)


class Talk:
    """Two answers with a tool's words between them, as a float32 engine records them."""

    def __init__(self, *, prompt: int = 8, first: int = 20, middle: int = 6, second: int = 20, seed: int = 3) -> None:
        dice = random.Random(seed)
        self.model = ToyModel()
        self.ids = [dice.randrange(VOCABULARY) for _ in range(prompt)]
        self._draw(dice, first)
        self.ids += [dice.randrange(VOCABULARY) for _ in range(middle)]
        self._draw(dice, second)
        self.answers = [(prompt, prompt + first), (prompt + first + middle, len(self.ids))]
        self.places = [at for start, end in self.answers for at in range(start, end)]
        self.exact = self.numbers()

    def _draw(self, dice: random.Random, count: int) -> None:
        for _ in range(count):
            row = ToyRun(self.ids, self.model.seed).rows[-1]
            self.ids.append(dice.choices(range(VOCABULARY), [math.exp(each) for each in row])[0])

    def numbers(self, *, temperature: float = 1.0, own: int = 0, seed: int | None = None) -> list[float]:
        run = ToyRun(self.ids, self.model.seed if seed is None else seed)
        return run.logprobs([Asked(at - 1 + own, self.ids[at], temperature) for at in self.places])

    def swapped(self, at: int) -> list[int]:
        return [*self.ids[:at], (self.ids[at] + 17) % VOCABULARY, *self.ids[at + 1 :]]

    def rollout(
        self,
        logprobs: Ordered[float | None],
        ids: list[int] | None = None,
        hashed: list[int] | None = None,
        call: dict[str, Any] | None = None,
        **sampling: Any,
    ) -> Rollout:
        """As a file has it: these numbers, these ids, and the hashes of the ids that the engine ran."""
        ids, hashed = ids or self.ids, hashed or self.ids
        segments, before = [], 0
        for index, (start, end) in enumerate(self.answers):
            segments.append(SequenceSegment(start=before, end=start, kind="observation" if before else "prompt"))
            segments.append(SequenceSegment(start=start, end=end, kind="sampled", call=index, trainable=True))
            before = end
        said: dict[str, Any] = {"logprobs_mode": "processed", "logprobs_temperature": 1.0} | (call or {})
        calls = tuple(
            CallInfo(
                call_id=f"c{index}",
                parent=index - 1 if index else None,
                history="spliced" if index else "root",
                kind="agent",
                dialect="chat",
                choice_index=0,
                head=0,
                sampling=0,
                sequence=0,
                started_at=NOW,
                finish="stop",
                usage=UsageInfo(prompt_tokens=start, completion_tokens=end - start),
                prompt_sha256=IdRun.of(hashed[:start]).sha256(),
                completion_sha256="0" * 64,
                complete=True,
                incomplete_reasons=(),
                **said,
            )
            for index, (start, end) in enumerate(self.answers)
        )
        sequence = Sequence(
            sequence_id="r/0",
            head=0,
            leaf_call=1,
            token_ids=IdRun.of(ids),
            prompt_length=self.answers[0][0],
            segments=tuple(segments),
            logprobs=LogprobRun.of(logprobs),
            complete=True,
            incomplete_reasons=(),
            media=(),
            arrays={},
            messages=(),
        )
        head = HeadInfo(model="m", engine="e", tokenizer_sha256="0" * 64, vocab_size=VOCABULARY, template_kwargs={})
        return Rollout(
            rollout_id="r",
            attempt=1,
            created_at=NOW,
            status="completed",
            trainable=True,
            mask_reasons=(),
            rewards={},
            metrics={},
            heads=(head,),
            samplings=(SamplingInfo(**({"temperature": 1.0} | sampling)),),
            calls=calls,
            sequences=(sequence,),
            messages=(),
            tools=(),
            token_counts=TokenCounts(sampled=40, trainable=40, masked={}, discarded={}),
            extra={},
        )
