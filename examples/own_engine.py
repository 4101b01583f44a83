"""An engine of your own in one file: a function from ids to logits, behind the wire that Turnstile samples from.

    python examples/own_engine.py FOLDER_WITH_TOKENIZER_JSON [PORT]
    turnstile serve --engine http://127.0.0.1:8400 --tokenizer FOLDER --template chat.jinja --store runs

It answers whole and runs one request at a time; `examples/rl/engine` streams, batches, sees pictures and takes new
weights. The wire is described in docs/reference/engine-wire.md.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
import struct
import sys
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

CONTEXT = 2048
VERSION = "0"


def logits_of(ids: Sequence[int], size: int) -> list[float]:
    """Your model goes here: `model(torch.tensor([ids])).logits[0, -1].tolist()`. This one prefers what came last."""
    return [3.0 if ids and token == (ids[-1] + 1) % size else 0.0 for token in range(size)]


def answer(ask: dict[str, Any], size: int) -> dict[str, Any]:
    """Sample until a stop, the limit or the end of the context."""
    prompt: list[int] = ask["input_ids"]
    stops, temperature = set(ask["stop_ids"]), ask["temperature"]
    limit = min(ask["max_tokens"] or CONTEXT, CONTEXT - len(prompt))
    dice = random.Random(ask.get("seed"))
    ids: list[int] = []
    logprobs: list[float] = []
    while len(ids) < limit and not (ids and ids[-1] in stops):
        scaled = [each / (temperature or 1.0) for each in logits_of([*prompt, *ids], size)]
        highest = max(scaled)
        total = highest + math.log(math.fsum(math.exp(each - highest) for each in scaled))
        rows = [each - total for each in scaled]
        weights = [math.exp(each) for each in rows]
        ids.append(dice.choices(range(size), weights)[0] if temperature else rows.index(max(rows)))
        logprobs.append(rows[ids[-1]])
    return {
        "prompt_tokens": len(prompt),
        "prompt_sha256": hashlib.sha256(struct.pack(f"<{len(prompt)}i", *prompt)).hexdigest(),
        "logprobs_mode": "temperature" if temperature else "raw",
        "logprobs_temperature": temperature or 1.0,
        "output_ids": ids,
        "logprobs": logprobs,
        "weight_version": VERSION,
        "finish_reason": "stop" if ids[-1] in stops else "length",
        "completion_tokens": len(ids),
    }


def server(folder: Path, port: int) -> ThreadingHTTPServer:
    """The engine, not running yet; port 0 = any free one."""
    source = (folder / "tokenizer.json").read_bytes()
    tokenizer = json.loads(source)
    named = [*tokenizer["model"]["vocab"].values(), *(each["id"] for each in tokenizer["added_tokens"])]
    size = max(named) + 1
    info = {
        "protocol": "turnstile.engine/1",
        "tokenizer_sha256": hashlib.sha256(source).hexdigest(),
        "vocab_size": size,
        "model": folder.name,
        "weight_version": VERSION,
        "context_length": CONTEXT,
        "honours": ["seed"],
    }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(200, {"/info": info, "/health": {}}.get(self.path, {}))

        def do_POST(self) -> None:
            ask = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if len(ask["input_ids"]) >= CONTEXT:
                error = {"code": "context_length_exceeded", "message": f"the context holds {CONTEXT} tokens"}
                return self._send(400, {"error": error})
            return self._send(200, answer(ask, size))

        def _send(self, status: int, said: dict[str, Any]) -> None:
            body = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)


if __name__ == "__main__":
    with server(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 8400) as running:
        print(f"http://127.0.0.1:{running.server_address[1]}", flush=True)
        running.serve_forever()
