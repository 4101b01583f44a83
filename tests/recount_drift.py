"""The drift of a store counted again, slowly and on its own: sqlite3, msgpack, jinja2 and tokenizers, nothing else.

It shares no code with Turnstile: it reads the bytes of the journal, walks every call from its root, renders the whole
conversation, encodes it whole and compares id by id. Written for models whose answers are plain text or Hermes calls.

    python tests/recount_drift.py STORE
"""

from __future__ import annotations

import json
import sqlite3
import struct
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import jinja2
import jinja2.ext
import jinja2.sandbox
import msgspec
import tokenizers


def ids_of(packed: bytes) -> list[int]:
    return list(struct.unpack(f"<{len(packed) // 4}i", packed))


class Recount:
    """One store."""

    def __init__(self, store: Path) -> None:
        with sqlite3.connect(f"file:{store / 'journal.sqlite3'}?mode=ro", uri=True) as journal:
            rows = journal.execute("SELECT rollout_id, attempt, body FROM records ORDER BY seq").fetchall()
            (card,) = {value for key, value in journal.execute("SELECT * FROM meta") if key.startswith("model_files:")}
        journal.close()
        files = msgspec.json.decode((store / "blobs" / card[:2] / card).read_bytes())["files"]
        self.tokenizer = tokenizers.Tokenizer.from_str(files["tokenizer_json"])
        self.tokenizer.post_processor = None
        self.specials = set(self.tokenizer.get_added_tokens_decoder())
        environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols]
        )
        environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
        self.template = environment.from_string(files["chat_template"])
        self.variables = files["special_tokens"]
        self.rollouts: dict[str, list[dict[str, Any]]] = {}
        for rollout_id, _, body in rows:
            self.rollouts.setdefault(rollout_id, []).append(msgspec.msgpack.decode(body))

    def reports(self) -> list[dict[str, Any]]:
        return [self._rollout(rollout_id, records) for rollout_id, records in self.rollouts.items()]

    def _rollout(self, rollout_id: str, records: list[dict[str, Any]]) -> dict[str, Any]:
        started = {each["call_id"]: each for each in records if each["type"] == "call_started"}
        committed = {each["call_id"]: each for each in records if each["type"] == "turn_committed"}
        heads = {each["head"]: each["new_head"] for each in started.values() if each["new_head"]}
        nodes = {
            (call_id, choice.get("choice", 0)): (started[call_id], choice)
            for call_id, turn in committed.items()
            for choice in turn["choices"]
        }
        parents = {
            tuple(call["parent"]) for call in started.values() if call["parent"] and call["call_id"] in committed
        }
        found: dict[str, Any] = Counter()
        by_kind: dict[str, Counter[str]] = {name: Counter() for name in ("calls", "prompt", "sequence")}
        differences: list[dict[str, Any]] = []
        calls: list[dict[str, Any]] = []
        for call_id in [each for each in started if each in committed]:
            call = started[call_id]
            ids, spans, messages = self._prompt(call, nodes)
            differs = self._compare(ids, spans, self._render(heads[call["head"]], messages, opened=True), whole=True)
            sampled = sum(end - start for start, end in spans)
            found.update(calls=1, prompt_sampled=sampled)
            calls.append(
                {"call_id": call_id, "tokens": len(ids), "sampled": sampled, "wrong": 0, "kind": None, "index": None}
            )
            if differs:
                calls[-1] |= {name: differs[name] for name in ("wrong", "kind", "index")}
                differences.append({"where": f"prompt of {call_id}", **differs})
                found.update(calls_differing=1, prompt_wrong=differs["wrong"])
                by_kind["calls"][differs["kind"]] += 1
                by_kind["prompt"][differs["kind"]] += differs["wrong"]
        for (call_id, number), (call, choice) in nodes.items():
            if (call_id, number) in parents:
                continue
            ids, spans, _ = self._prompt(call, nodes)
            messages = self._told(call, nodes)
            spans = [*spans, (len(ids), len(ids) + len(choice["ids_S"]) // 4)]
            ids += ids_of(choice["ids_S"])
            rendered = self._render(heads[call["head"]], [*messages, choice["message"]], opened=False)
            differs = self._compare(ids, spans, rendered, whole=False)
            found.update(sequences=1, sampled=sum(end - start for start, end in spans))
            if differs:
                where = f"sequence of {call_id}" + (f".{number}" if number else "")
                differences.append({"where": where, **differs})
                found.update(sequences_differing=1, wrong=differs["wrong"])
                by_kind["sequence"][differs["kind"]] += differs["wrong"]
        names = ("calls", "calls_differing", "prompt_sampled", "prompt_wrong",
                 "sequences", "sequences_differing", "sampled", "wrong")  # fmt: skip
        return {
            "rollout_id": rollout_id,
            **{name: found[name] for name in names},
            "calls_compared": found["calls"],
            "sequences_compared": found["sequences"],
            "calls_by_kind": dict(by_kind["calls"]),
            "prompt_wrong_by_kind": dict(by_kind["prompt"]),
            "wrong_by_kind": dict(by_kind["sequence"]),
            "by_call": calls,
            "differences": differences,
        }

    def _prompt(self, call: dict[str, Any], nodes: dict[Any, Any]) -> tuple[list[int], list[Any], list[Any]]:
        """Ids of a call's prompt, the sampled stretches in it, and its messages as the client sent them."""
        if call["parent"] is None:
            return ids_of(call["added_A"]), [], list(call["new_M"])
        parent, choice = nodes[tuple(call["parent"])]
        ids, spans, messages = self._prompt(parent, nodes)
        kept = call["held_length"]
        spans = [*spans, (len(ids), min(kept, len(ids) + len(choice["ids_S"]) // 4))]
        ids = (ids + ids_of(choice["ids_S"]))[:kept] + ids_of(call["added_A"])
        return ids, spans, [*messages, call.get("echoed") or choice["message"], *call["new_M"]]

    def _told(self, call: dict[str, Any], nodes: dict[Any, Any]) -> list[Any]:
        """The messages before a call's answer, each earlier answer as it was handed out."""
        if call["parent"] is None:
            return list(call["new_M"])
        parent, choice = nodes[tuple(call["parent"])]
        return [*self._told(parent, nodes), choice["message"], *call["new_M"]]

    def _render(self, head: dict[str, Any], messages: list[Any], *, opened: bool) -> list[int]:
        text = self.template.render(
            **self.variables,
            messages=[self._message(each) for each in messages],
            tools=[json.loads(tool) for tool in head["tools"]] or None,
            add_generation_prompt=opened,
        )
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    @staticmethod
    def _message(message: dict[str, Any]) -> dict[str, Any]:
        content = "\n".join(part["text"] for part in message.get("parts", ()))
        written: dict[str, Any] = {"role": message["role"], "content": content}
        if message.get("calls"):
            written["tool_calls"] = [
                {"type": "function", "function": {"name": each["name"], "arguments": json.loads(each["arguments"])}}
                for each in message["calls"]
            ]
        return written

    def _compare(self, held: list[int], spans: list[Any], rendered: list[int], *, whole: bool) -> dict[str, Any] | None:
        at = 0
        while at < len(held) and at < len(rendered) and held[at] == rendered[at]:
            at += 1
        if at == len(held) and (not whole or at == len(rendered)):
            return None
        return {
            "kind": self._kind(held, spans, rendered, at),
            "index": at,
            "wrong": sum(1 for start, end in spans for index in range(start, end) if index >= at),
            "held": self._text(held[max(0, at - 2) : at + 10]),
            "rendered": self._text(rendered[max(0, at - 2) : at + 10]),
        }

    def _text(self, ids: list[int]) -> str:
        return self.tokenizer.decode(ids, skip_special_tokens=False)

    def _kind(self, held: list[int], spans: list[Any], rendered: list[int], at: int) -> str:
        """By the texts between the control tokens: one that is equal was spelled otherwise."""
        inside = [span for span in spans if span[0] <= at < span[1]]
        start, end = at, at
        while start > 0 and held[start - 1] not in self.specials:
            start -= 1
        while end < len(held) and held[end] not in self.specials:
            end += 1
        again = start
        while again < len(rendered) and rendered[again] not in self.specials:
            again += 1
        was, now = self._text(held[start:end]), self._text(rendered[start:again])
        if not inside and was != now:
            return "scaffold"
        if was == now:
            return "retokenization"
        return "whitespace" if "".join(was.split()) == "".join(now.split()) else "edited"


def recount(store: Path) -> list[dict[str, Any]]:
    """One report a rollout, in the order of the journal."""
    return Recount(store).reports()


if __name__ == "__main__":
    for each in recount(Path(sys.argv[1])):
        sys.stdout.write(json.dumps(each, ensure_ascii=False) + "\n")
