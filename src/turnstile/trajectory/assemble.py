"""From a forest to a trajectory: every completion accounted for, each sampled token trainable at most once."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import cast

import msgspec
import orjson

from turnstile.errors import StoreError, TurnstileError
from turnstile.history.calls import CallState
from turnstile.history.forest import Forest
from turnstile.journal import RolloutFinished, RolloutOpened, RolloutStatus
from turnstile.reasons import DiscardReason, EndReason, MaskReason
from turnstile.tokens import SegmentKind
from turnstile.trajectory.call_lines import CallLines
from turnstile.trajectory.chat_shape import Shelf
from turnstile.trajectory.fates import CallLine, Fates
from turnstile.trajectory.remarks import extra_of
from turnstile.trajectory.rules import Rules, Weights, weighted
from turnstile.trajectory.sequences import logprobs_of, path_pieces, segments_of
from turnstile.trajectory.shapes import CallInfo, ErrorInfo, JsonObject, Rollout, Sequence, TokenCounts

RUNNER_SAID = "runner_said"
"""Why a rollout is not trainable, where its runner gave no other reason."""


class ConservationError(TurnstileError):
    """Some sampled token would be lost, or counted twice, in an export."""

    code = "tokens_not_conserved"


def assemble(forest: Forest, rules: Rules | None = None) -> Rollout:
    """The trajectory of one attempt of a rollout, as far as its records say; `running` if it is still open.

    Args:
        forest: The fold over its records.
        rules: What the user chose about weights and training; None: the usual.

    Raises: StoreError if there is no record of its opening; ConservationError if a sampled token is neither
    trainable, nor masked with a reason, nor discarded with a reason, or is so twice.
    """
    opened = forest.opened
    if opened is None:
        raise StoreError("The rollout's records do not begin with its opening", "Restore the journal from a copy")
    fates = Fates(forest, rules)
    shelf = Shelf()
    writer = CallLines(forest, fates, shelf)
    calls = tuple(writer.write(line) for line in fates.lines)
    verdict = _verdict(forest)
    sequences = tuple(_sequence(index, opened, fates, writer, shelf) for index in range(len(fates.leaves)))
    sequences = weighted(tuple(map(_withheld, sequences)) if verdict.against else sequences, fates.rules.weights)
    rollout = Rollout(
        rollout_id=opened.rollout_id,
        attempt=opened.attempt,
        group_id=opened.group_id,
        task_id=opened.task_id,
        sample_index=opened.sample_index,
        parent_rollout_id=opened.parent_rollout_id,
        agent_name=opened.agent_name,
        created_at=opened.opened_at,
        status=RolloutStatus.RUNNING.value,
        trainable=not verdict.against,
        mask_reasons=verdict.against,
        rewards={},
        metrics=verdict.metrics,
        heads=writer.heads,
        samplings=writer.samplings,
        calls=calls,
        sequences=sequences,
        messages=shelf.messages,
        tools=shelf.tool_lists,
        token_counts=_token_counts(calls, sequences, forest, fates),
        extra=extra_of(forest, fates, writer.nearest),
    )
    _check_conservation(rollout)
    return rollout if forest.finished is None else _finished(rollout, forest, forest.finished)


def _sequence(index: int, opened: RolloutOpened, fates: Fates, writer: CallLines, shelf: Shelf) -> Sequence:
    leaf = fates.leaves[index]
    pieces = path_pieces(leaf)
    spelled = fates.spelling.path(leaf)
    segments = tuple(
        msgspec.structs.replace(part, start=spelled.index(part.start), end=spelled.index(part.end))
        for part in segments_of(pieces, index, fates)
    )
    token_ids = spelled.ids_T
    first_sampled = next((part.start for part in segments if part.kind == SegmentKind.SAMPLED), len(token_ids))
    incomplete = dict.fromkeys(chain.from_iterable(fates.incomplete_reasons(node) for node in leaf.path()))
    attempt = f"#{opened.attempt}" if opened.attempt > 1 else ""
    return Sequence(
        sequence_id=f"{opened.rollout_id}/{index}{attempt}",
        head=writer.head_number(leaf.started),
        leaf_call=fates.line_of[leaf.ref],
        agent_name=leaf.started.agent_name or opened.agent_name,
        token_ids=token_ids,
        prompt_length=first_sampled,
        segments=segments,
        logprobs=logprobs_of(pieces),
        complete=not incomplete,
        incomplete_reasons=tuple(reason.value for reason in incomplete),
        media=tuple(spelled.media()),
        arrays={},
        messages=tuple(shelf.message(message) for message in leaf.messages_M),
    )


class _Verdict(msgspec.Struct, frozen=True):
    """What a runner said of the rollout as a whole."""

    against: tuple[str, ...] = ()
    """Why nothing of it is to be trained on; empty: it may be."""
    metrics: dict[str, float | None] = {}


class _Said(msgspec.Struct, frozen=True):
    """What is looked for in the metadata that a runner gives at the end."""

    trainable: bool = True
    mask_reasons: tuple[str, ...] = (RUNNER_SAID,)
    metrics: dict[str, float | None] = {}


def _verdict(forest: Forest) -> _Verdict:
    if forest.finished is None:
        return _Verdict()
    try:
        said = msgspec.json.decode(forest.finished.metadata, type=_Said)
    except msgspec.ValidationError:
        # The keys are the runner's own, so other types under the same names mean something else.
        return _Verdict()
    return _Verdict(() if said.trainable else said.mask_reasons or (RUNNER_SAID,), said.metrics)


def _withheld(sequence: Sequence) -> Sequence:
    """A sequence of a rollout of which nothing is to be trained on."""
    reason = MaskReason.ROLLOUT_UNTRAINABLE.value
    segments = [
        msgspec.structs.replace(each, trainable=False, mask_reason=reason, weight=1.0) if each.trainable else each
        for each in sequence.segments
    ]
    return msgspec.structs.replace(sequence, segments=tuple(segments))


def _token_counts(
    calls: tuple[CallInfo, ...], sequences: tuple[Sequence, ...], forest: Forest, fates: Fates
) -> TokenCounts:
    trainable = 0
    is_split = fates.rules.weights is Weights.SPLIT
    masked: Counter[str] = Counter()
    discarded: Counter[str] = Counter()
    for index, sequence in enumerate(sequences):
        for segment, _ in sequence.sampled_segments():
            length = segment.end - segment.start
            is_owner = calls[segment.call or 0].sequence == index
            if segment.trainable:
                # A share in another sequence is the same token; without shares there must be none.
                trainable += length if is_owner or not is_split else 0
            elif is_owner:
                masked[segment.mask_reason or ""] += length
    for line, call in zip(fates.lines, calls, strict=True):
        if call.sequence is None:
            discarded[call.kind_reason or ""] += _sampled_by(line)
    discarded[DiscardReason.ABORTED_TAIL.value] += _tails(forest)
    return TokenCounts(
        sampled=_sampled_in_all(forest),
        trainable=trainable,
        masked=dict(masked),
        discarded={reason: length for reason, length in discarded.items() if length},
    )


def _sampled_by(line: CallLine) -> int:
    if line.node is not None:
        return len(line.node.choice.ids_S)
    return 0 if line.state.failed is None else line.state.failed.partial_count


def _sampled_in_all(forest: Forest) -> int:
    """Every token that the journal says was sampled, counted past all that decides where it goes."""
    return sum(map(_sampled_by_call, forest.calls.values()))


def _sampled_by_call(state: CallState) -> int:
    if state.committed is not None:
        return sum(len(choice.ids_S) for choice in state.committed.choices)
    return 0 if state.failed is None else state.failed.partial_count


def _tails(forest: Forest) -> int:
    """What failed calls had sampled beside the beginnings that clients went on from."""
    resumed: Counter[str] = Counter()
    for node in forest.nodes:
        if node.is_resumed:
            resumed[node.ref.call_id] += len(node.choice.ids_S)
    failed = {call_id: state.failed for call_id, state in forest.calls.items() if call_id in resumed}
    return sum(each.partial_count - resumed[call_id] for call_id, each in failed.items() if each is not None)


def _check_conservation(rollout: Rollout) -> None:
    counts = rollout.token_counts
    accounted = counts.trainable + sum(counts.masked.values()) + sum(counts.discarded.values())
    if counts.sampled != accounted:
        raise ConservationError(
            f"Rollout {rollout.rollout_id}: {counts.sampled} tokens were sampled, but {accounted} are accounted for",
            "Report this with a copy of the journal; nothing was written",
        )


def _finished(rollout: Rollout, forest: Forest, finished: RolloutFinished) -> Rollout:
    said = cast(JsonObject, orjson.loads(finished.metadata))
    stop_reason = said.get("stop_reason")
    return msgspec.structs.replace(
        rollout,
        # The machine's clock may have been set back between two processes.
        finished_at=max(rollout.created_at, finished.finished_at),
        status=finished.status.value,
        stop_reason=stop_reason if isinstance(stop_reason, str) else None,
        error=_error(forest, finished),
        reward=finished.reward,
        rewards=finished.rewards,
    )


_NOT_ITS_RUNNER = {
    EndReason.IDLE_TIMEOUT: "No call came for as long as the server allows, so it was closed.",
    EndReason.STORE_DAMAGED: "Some of its records were lost with a damaged store.",
}


def _error(forest: Forest, finished: RolloutFinished) -> ErrorInfo | None:
    """Why the rollout did not end well, where that is known."""
    if finished.reason is not EndReason.RUNNER:
        return ErrorInfo(type=finished.reason.value, message=_NOT_ITS_RUNNER[finished.reason])
    return _last_failure(forest) if finished.status is RolloutStatus.FAILED else None


def _last_failure(forest: Forest) -> ErrorInfo | None:
    """The last call that failed: the nearest thing to a cause that the journal knows."""
    failures = [state.failed for state in forest.calls.values() if state.failed is not None]
    last = max([*failures, *forest.refused], key=lambda failed: failed.failed_at, default=None)
    return None if last is None else ErrorInfo(type=last.reason.value, message=last.problem)
