"""The examples as their own programs find them: from the folder examples/rl."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "rl"))


class ScriptedModel:
    """A server of OpenAI chat that answers in turn what a test wrote, and keeps what it was sent."""

    def __init__(self) -> None:
        self.answers: list[dict[str, Any]] = []
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.url = ""

    def says(self, content: str, finish: str = "stop") -> None:
        self.answers.append({"finish_reason": finish, "message": {"role": "assistant", "content": content}})

    def calls(self, name: str, arguments: str) -> None:
        call = {
            "id": f"call_{len(self.answers)}",
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        }
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        self.answers.append({"finish_reason": "tool_calls", "message": message})

    def answer(self, key: str, body: dict[str, Any]) -> dict[str, Any]:
        self.keys.append(key)
        self.requests.append(body)
        choice = {"index": 0, **self.answers[len(self.requests) - 1]}
        return {"id": "c", "object": "chat.completion", "created": 0, "model": body["model"], "choices": [choice]}

    def last_result(self) -> str:
        """What the last tool said, as the model read it."""
        return str(self.requests[-1]["messages"][-1]["content"])


@pytest.fixture
def scripted() -> Iterator[ScriptedModel]:
    model = ScriptedModel()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            said = json.dumps(model.answer(self.headers["authorization"], body)).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        model.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield model
        server.shutdown()
        thread.join()
