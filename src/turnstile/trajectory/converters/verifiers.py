"""verifiers 0.4.0: a v1 `Trace` for each rollout, a graph of messages in which a shared prefix stands once.

Source: verifiers/v1/graph.py::MessageNode and verifiers/v1/trace.py::Trace of the 0.4.0 wheel. The tokens of a branch
are those of its nodes in order; the scaffold that opens an answer belongs to the answer's node. `mask` is true for
trained tokens, and log-probabilities are packed: one for each of them.
"""

from __future__ import annotations

from typing import cast

import msgspec

from turnstile.reasons import MaskReason
from turnstile.trajectory.converters.base import Facts, Lost, Reward, Rows, Unit, Weights
from turnstile.trajectory.converters.options import Options
from turnstile.trajectory.converters.rows import Row
from turnstile.trajectory.converters.turns import Turn, turns_of
from turnstile.trajectory.format import Fields
from turnstile.trajectory.shapes import JsonObject

_ROLES = {"developer": "system"}
_STOPS = {"truncated": "max_turns", "failed": "error", "aborted": "aborted"}


class Verifiers:
    """Each sample is what `Trace.model_validate` takes; advantages are left to the orchestrator."""

    name = "verifiers"
    facts = Facts(
        trainer="verifiers",
        unit=Unit.ROLLOUT,
        rows=Rows.TOGETHER,
        reward=Reward.NEEDED,
        weights=Weights.CARRIED,
        lost=frozenset({Lost.POLICY_VERSIONS, Lost.SIDE_ARRAYS}),
    )

    def sample(self, rows: tuple[Row, ...], options: Options) -> Fields:
        """Parts of the reward are metrics: its `rewards` are added up."""
        del options
        rollout = rows[0].rollout
        graph = _Graph()
        for row in rows:
            graph.add(row)
        return {
            "id": rollout.rollout_id,
            "task": {"type": "Task", "data": {"id": rollout.task_id}},
            "agent": {"name": rollout.agent_name or "agent", "config": {}},
            "nodes": graph.nodes,
            "rewards": {"reward": {"score": rollout.reward, "weight": 1.0}},
            "metrics": rollout.rewards | rollout.metrics,
            "info": {"group_id": rollout.group_id},
            "is_completed": True,
            "ok": rollout.status in ("completed", "truncated"),
            "stop_condition": _STOPS.get(rollout.status, rollout.stop_reason),
        }


class _Dense(msgspec.Struct, frozen=True):
    """A row's arrays, derived once."""

    row: Row
    ids_T: list[int]
    mask_T: list[int]
    logprobs_T: list[float]
    weights_T: list[float]


class _Tokens(msgspec.Struct, frozen=True):
    """The tokens of one node and what is known of each."""

    ids: tuple[int, ...]
    mask: tuple[bool, ...]
    owned_elsewhere: bool
    """Whether an earlier sequence trains some of them under the same prefix."""
    logprobs: tuple[float, ...]
    weights: tuple[float, ...]


class _Graph:
    """Nodes in order of their first use; a node is one message behind one other node."""

    def __init__(self) -> None:
        self.nodes: list[Fields] = []
        self._children: dict[tuple[int | None, int, tuple[int, ...]], list[int]] = {}
        self._tokens: list[_Tokens] = []

    def add(self, row: Row) -> None:
        """Walk along what is there, and add what is new."""
        dense = _Dense(row, row.ids_T, row.mask_T, row.logprobs_T, row.weights_T)
        parent: int | None = None
        for turn in turns_of(row.rollout, row.sequence):
            parent = self._context(dense, turn, parent)
            message = turn.message or {"role": "assistant", "content": ""}
            parent = self._step(parent, turn.call, message, _tokens(dense, turn.opening, turn.end))

    def _context(self, dense: _Dense, turn: Turn, parent: int | None) -> int | None:
        """Where one message's tokens end and the next one's begin is not known: the last one has them all."""
        nothing_said: JsonObject = {"role": "user", "content": ""}
        messages = turn.context or (nothing_said,) * (turn.opening > turn.start)
        for left, message in zip(reversed(range(len(messages))), messages, strict=True):
            start = turn.opening if left else turn.start
            parent = self._step(parent, -1, message, _tokens(dense, start, turn.opening))
        return parent

    def _step(self, parent: int | None, call: int, message: JsonObject, tokens: _Tokens) -> int:
        known = self._children.setdefault((parent, call, tokens.ids), [])
        shaped = _message(message)
        for number in known:
            if self.nodes[number]["message"] == shaped and _same(self._tokens[number], tokens):
                return number
        known.append(len(self.nodes))
        self.nodes.append(_node(parent, shaped, tokens, sampled=call >= 0))
        self._tokens.append(tokens)
        return known[-1]


def _same(there: _Tokens, here: _Tokens) -> bool:
    """Whether a node says what is to be said here: what an earlier sequence trains stands there as trained.

    What is trained here is not there: a shared node is trained once, and `--weights split` trains it in each sequence.
    """
    return not any(here.mask) and (here.owned_elsewhere or not any(there.mask))


def _tokens(dense: _Dense, start: int, end: int) -> _Tokens:
    mask = dense.mask_T[start:end]
    owned = any(
        segment.mask_reason == MaskReason.OWNED_BY_OTHER_SEQUENCE and start <= segment.start < end
        for segment in dense.row.sequence.segments
    )
    return _Tokens(
        ids=tuple(dense.ids_T[start:end]),
        mask=tuple(counted == 1 for counted in mask),
        owned_elsewhere=owned,
        logprobs=tuple(value for value, counted in zip(dense.logprobs_T[start:end], mask, strict=True) if counted),
        weights=tuple(dense.weights_T[start:end]),
    )


def _node(parent: int | None, message: Fields, tokens: _Tokens, *, sampled: bool) -> Fields:
    node: Fields = {
        "parent": parent,
        "message": message,
        "sampled": sampled,
        "token_ids": list(tokens.ids),
        "mask": list(tokens.mask),
        "logprobs": list(tokens.logprobs),
    }
    if any(weight != 1.0 for weight, counted in zip(tokens.weights, tokens.mask, strict=True) if counted):
        node["loss_weights"] = {"rl": list(tokens.weights)}
    return node


def _message(message: JsonObject) -> Fields:
    role = str(message.get("role"))
    shaped: Fields = {"role": _ROLES.get(role, role), "content": message.get("content")}
    if role != "assistant":
        shaped["content"] = shaped["content"] or ""
    if role == "tool":
        shaped["tool_call_id"] = message.get("tool_call_id") or ""
    if message.get("reasoning_content"):
        shaped["reasoning_content"] = message["reasoning_content"]
    calls = cast(list[JsonObject], message.get("tool_calls") or [])
    if calls:
        shaped["tool_calls"] = [_tool_call(call) for call in calls]
    return shaped


def _tool_call(call: JsonObject) -> Fields:
    function = cast(JsonObject, call.get("function") or {})
    return {"id": call.get("id"), "name": function.get("name"), "arguments": function.get("arguments")}
