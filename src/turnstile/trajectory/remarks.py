"""What is known of calls beyond the format's own fields, for `extra`: nothing that happened goes unsaid.

Keys: `turnstile.calls` (call id -> facts), `turnstile.running`, `turnstile.refused`, `turnstile.rejected`,
`turnstile.metadata`, `turnstile.retention`, `turnstile.literal_specials`, `turnstile.suspect_logprobs`,
`turnstile.export`. docs/reference/trajectory.md lists what stands in each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

import orjson

from turnstile.generation import Cut, Forked, LiteralSpecials, Rerendered, Root, Spliced
from turnstile.history.forest import Forest
from turnstile.journal import SuspectLogprobs
from turnstile.trajectory.fates import CallLine, Fates
from turnstile.trajectory.format import stamp
from turnstile.trajectory.nearest import Nearest
from turnstile.trajectory.shapes import JsonObject


def extra_of(forest: Forest, fates: Fates, nearest: Mapping[str, Nearest]) -> JsonObject:
    """The `extra` object of a rollout; a key with nothing to say is left out."""
    left_behind = _left_behind(fates, nearest)
    found: JsonObject = {
        "turnstile.calls": {
            line.call_id: facts for line in fates.lines if (facts := _facts(line, nearest, left_behind))
        },
        "turnstile.running": list(fates.running),
        "turnstile.refused": [
            _said(at=stamp(failed.failed_at), reason=failed.reason.value, problem=failed.problem, status=failed.status)
            for failed in forest.refused
        ],
        "turnstile.rejected": [{"at": stamp(late.at), "reason": late.reason} for late in forest.rejected],
        "turnstile.metadata": _metadata(forest),
        "turnstile.retention": None if forest.opened is None else forest.opened.retention.value,
        "turnstile.literal_specials": _literal_specials(forest),
        "turnstile.suspect_logprobs": _suspect_logprobs(forest),
        "turnstile.export": fates.rules.told(),
    }
    return _said(**found)


def _said(**facts: object) -> JsonObject:
    """The facts that say something."""
    return {
        name: value for name, value in facts.items() if value not in (None, "", (), 0) and value != [] and value != {}
    }


def _metadata(forest: Forest) -> JsonObject:
    opened = orjson.loads(forest.opened.metadata) if forest.opened else None
    finished = orjson.loads(forest.finished.metadata) if forest.finished else None
    return _said(opened=opened, finished=finished)


def _literal_specials(forest: Forest) -> list[str]:
    """The settings under which prompts were rendered, in order of use; nothing if it was the engines' own alone."""
    found = list(dict.fromkeys(head.literal_specials for head in forest.heads.values()))
    return [] if found == [LiteralSpecials.AS_ENGINE] else [each.value for each in found]


def _suspect_logprobs(forest: Forest) -> str | None:
    """The policy, where it is not to mark alone."""
    policy = SuspectLogprobs.MARK if forest.opened is None else forest.opened.suspect_logprobs
    return None if policy is SuspectLogprobs.MARK else policy.value


def _left_behind(fates: Fates, nearest: Mapping[str, Nearest]) -> Mapping[str, str]:
    """By call id: the first later call that went another way from a sequence's last answer."""
    ends = {leaf.ref for leaf in fates.leaves}
    by_leaf: dict[str, str] = {}
    for call_id, held in nearest.items():
        if held.ref in ends:
            by_leaf.setdefault(str(held.ref), call_id)
    return by_leaf


def _facts(line: CallLine, nearest: Mapping[str, Nearest], left_behind: Mapping[str, str]) -> JsonObject:
    started = line.state.started
    near = nearest.get(started.call_id)
    notes = [*started.notes, *(line.node.choice.notes if line.node is not None else ())]
    return _said(
        **_history_facts(line),
        nearest_call=None if near is None else str(near.ref),
        left_behind_by=left_behind.get(line.call_id),
        parent_agent=started.parent_agent,
        engine=started.engine_name,
        notes=[_said(code=note.code.value, detail=note.detail) for note in notes],
        **_answer_facts(line),
        **_delivery_facts(line),
    )


def _history_facts(line: CallLine) -> JsonObject:
    history = line.state.started.history
    match history:
        case Root():
            return {}
        case Spliced(bridge=bridge):
            return {"bridge": bridge.value}
        case Forked(message_index=index, char_offset=offset, was=was, now=now):
            where = {"message_index": index, "char_offset": offset}
            return {"change": {name: at for name, at in where.items() if at is not None} | _said(was=was, now=now)}
        case Rerendered(detail=detail):
            return {"rerender": detail}
        case _:
            assert_never(history)


def _answer_facts(line: CallLine) -> JsonObject:
    if line.node is None:
        failed = line.state.failed
        return {} if failed is None else {"failure": _said(problem=failed.problem, status=failed.status)}
    choice = line.node.choice
    return {
        "cut": None if choice.cut is Cut.NONE else choice.cut.value,
        "stop_string": choice.stop_string,
        "sampler_echo": choice.sampler_echo,
        "policy_labels": [
            {"start": tile.start_S, "end": tile.end_S, "label": tile.label}
            for tile in choice.policy_ranges
            if tile.lowest is None and tile.label
        ],
        "engine_calls": [
            _said(
                ids=call.ids,
                engine_request_id=call.engine_request_id,
                engine_finish_reason=call.engine_finish_reason,
                discarded_ids=call.discarded_S.tolist(),
            )
            for call in choice.engine_calls
        ],
    }


def _delivery_facts(line: CallLine) -> JsonObject:
    undelivered = line.state.undelivered
    return {
        "repeats": [{"at": stamp(joined.joined_at), "how": joined.how} for joined in line.state.joined],
        "undelivered": None
        if undelivered is None
        else {"at": stamp(undelivered.at), "reason": undelivered.reason.value},
    }
