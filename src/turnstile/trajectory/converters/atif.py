"""ATIF v1.8, for people and for tools of Harbor 0.25.0: a trajectory for each sequence. It is no way back.

Source: harbor/models/trajectories/*.py of the 0.25.0 wheel, where further fields are forbidden; what it has no field
for stands in `extra`. Unscored, incomplete and untrained sequences are written too.
"""

from __future__ import annotations

from typing import cast

import msgspec

from turnstile.trajectory.converters.base import Facts, Keeps, Lost, Media, Reward, Rows, Temperature, Weights
from turnstile.trajectory.converters.options import Options
from turnstile.trajectory.converters.rows import Row
from turnstile.trajectory.converters.turns import Turn, text_of, turns_of
from turnstile.trajectory.format import Fields, stamp
from turnstile.trajectory.shapes import CallInfo, JsonObject

_IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})


class Atif:
    """Each sample is one trajectory."""

    name = "atif"
    facts = Facts(
        trainer="ATIF",
        rows=Rows.TOGETHER,
        reward=Reward.MAY_BE_UNKNOWN,
        weights=Weights.CARRIED,
        temperature=Temperature.UNKNOWN,
        media=Media.CARRIED,
        keeps=Keeps.ALL,
        lost=frozenset({Lost.SIDE_ARRAYS}),
    )

    def sample(self, rows: tuple[Row, ...], options: Options) -> Fields:
        """The ids of every prompt stand at each step anew: the size grows with the square of the turns."""
        del options
        (row,) = rows
        return {
            "schema_version": "ATIF-v1.8",
            "session_id": row.rollout.rollout_id,
            "trajectory_id": row.sequence.sequence_id,
            "agent": _agent(row),
            "steps": _steps(row),
            "extra": _extra(row),
        }


def _agent(row: Row) -> Fields:
    head = row.rollout.heads[row.sequence.head]
    agent: Fields = {
        "name": row.sequence.agent_name or row.rollout.agent_name or "agent",
        "version": "unknown",
        "model_name": head.model,
    }
    return agent if head.tools is None else agent | {"tool_definitions": list(row.rollout.tools[head.tools])}


def _extra(row: Row) -> Fields:
    rollout, sequence = row.rollout, row.sequence
    return {
        "turnstile": {
            "attempt": rollout.attempt,
            "group_id": rollout.group_id,
            "task_id": rollout.task_id,
            "status": rollout.status,
            "reward": row.reward,
            "rewards": rollout.rewards,
            "trainable": rollout.trainable,
            "mask_reasons": list(rollout.mask_reasons),
            "complete": sequence.complete,
            "incomplete_reasons": list(sequence.incomplete_reasons),
        }
    }


def _steps(row: Row) -> list[Fields]:
    steps: list[Fields] = []
    for turn in turns_of(row.rollout, row.sequence):
        for message in turn.context:
            _add_message(steps, message)
        steps.append(_spoken(turn.message) | _sampled(row, turn))
    return [{"step_id": number} | step for number, step in enumerate(steps or [_said_nothing()], start=1)]


def _said_nothing() -> Fields:
    return {"source": "system", "message": ""}


def _add_message(steps: list[Fields], message: JsonObject) -> None:
    """A message that was not sampled here: a step of its own, but a tool's answer belongs to the step that asked."""
    role = message.get("role")
    if role == "tool" and steps and steps[-1]["source"] == "agent":
        observation = cast(dict[str, list[Fields]], steps[-1].setdefault("observation", {"results": []}))
        observation["results"].append(_result(steps[-1], message))
    elif role == "assistant":
        steps.append(_spoken(message) | {"is_copied_context": True})
    else:
        source = "system" if role in ("system", "developer") else "user"
        steps.append({"source": source, "message": _content(message)})


def _result(step: Fields, message: JsonObject) -> Fields:
    asked = {call["tool_call_id"] for call in cast(list[Fields], step.get("tool_calls", []))}
    name = message.get("tool_call_id")
    of_which: Fields = {"source_call_id": name} if name in asked else {"extra": {"tool_call_id": name}}
    return of_which | {"content": _content(message)}


def _spoken(message: JsonObject | None) -> Fields:
    if message is None:
        return {"source": "agent", "message": ""}
    step: Fields = {"source": "agent", "message": _content(message)}
    if message.get("reasoning_content"):
        step["reasoning_content"] = message["reasoning_content"]
    calls = cast(list[JsonObject], message.get("tool_calls") or [])
    return step | {"tool_calls": [_tool_call(call) for call in calls]} if calls else step


def _tool_call(call: JsonObject) -> Fields:
    function = cast(JsonObject, call.get("function") or {})
    written = str(function.get("arguments", ""))
    try:
        arguments: object = msgspec.json.decode(written)
    except msgspec.DecodeError:
        arguments = None
    return {
        "tool_call_id": str(call.get("id", "")),
        "function_name": str(function.get("name", "")),
        "arguments": arguments if isinstance(arguments, dict) else {"_raw": written},
    }


def _sampled(row: Row, turn: Turn) -> Fields:
    call = row.rollout.calls[turn.call]
    fields: Fields = {
        "llm_call_count": 1,
        "metrics": _metrics(row, turn, call),
        "extra": {
            "turnstile": {
                "call_id": call.call_id,
                "history": call.history,
                "history_reason": call.history_reason,
                "kind": call.kind,
                "logprobs_mode": call.logprobs_mode,
                "segments": [_segment(each) for each in turn.segments],
            }
        },
    }
    if call.finished_at is not None:
        fields["timestamp"] = stamp(call.finished_at)
    if any(segment.mask_reason == "owned_by_other_sequence" for segment in turn.segments):
        fields["is_copied_context"] = True
    return fields


def _segment(segment: msgspec.Struct) -> Fields:
    names = ("start", "end", "trainable", "mask_reason", "weight", "policy_version_min", "policy_version_max")
    return {name: getattr(segment, name) for name in names}


def _metrics(row: Row, turn: Turn, call: CallInfo) -> Fields:
    ids = row.ids_T
    metrics: Fields = {
        "prompt_tokens": turn.answer,
        "completion_tokens": turn.end - turn.answer,
        "prompt_token_ids": ids[: turn.answer],
        "completion_token_ids": ids[turn.answer : turn.end],
    }
    if call.usage.cached_tokens is not None:
        metrics["cached_tokens"] = call.usage.cached_tokens
    logprobs = _logprobs(row, turn)
    # A list without a number for each token would have to hold one that was never recorded.
    return metrics if None in logprobs else metrics | {"logprobs": logprobs}


def _logprobs(row: Row, turn: Turn) -> list[float | None]:
    for segment, before_S in row.sequence.sampled_segments():
        if segment.start == turn.answer:
            return row.sequence.logprobs.slice(before_S, before_S + turn.end - turn.answer).tolist()
    return [None]


def _content(message: JsonObject) -> str | list[Fields]:
    content = message.get("content")
    if not isinstance(content, list):
        return text_of(message)
    return [_part(cast(JsonObject, part)) for part in cast(list[object], content)]


def _part(part: JsonObject) -> Fields:
    if part.get("type") == "text":
        return {"type": "text", "text": str(part.get("text", ""))}
    sha256, mime = str(part.get("sha256", "")), part.get("media_type")
    if mime not in _IMAGES:
        return {"type": "text", "text": f"[{part.get('type')} {sha256}]"}
    return {"type": "image", "source": {"media_type": mime, "path": f"{sha256[:2]}/{sha256}"}}
