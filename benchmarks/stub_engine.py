"""An engine that takes no time: llama.cpp's routes, one canned answer, the prompt counted but never read.

`/completion` is stateless, as the real one is: where in the answer it goes on is read off the last prompt ids.
`/v1/chat/completions` serves the relay and the other proxies; vLLM's extra fields are added where they are asked for.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

import msgspec
from materials import MODEL, TEMPLATE, Answer
from serving import serve
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from tokenizers import Tokenizer

CONTEXT = 1 << 20
SLOTS = 512
_PROBABILITY = 0.5
_CHARACTERS_PER_ID = 5


class _Settings(msgspec.Struct):
    n_predict: int


class _Text(msgspec.Struct):
    content: str


class Stub:
    """The routes and what they answer."""

    def __init__(self, folder: Path) -> None:
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._answer = Answer(**json.loads((folder / "answer.json").read_text()))
        self._entries = [self._entry(at) for at in self._answer.ids]
        self._chat = json.dumps(self._chat_body()).encode()
        # Ids of five digits, to be cut anywhere at a multiple of six bytes.
        self._many_ids = ",".join(str(10_000 + at % 2000) for at in range(1 << 18)).encode()

    def app(self) -> Starlette:
        """The ASGI app."""
        return Starlette(
            routes=[
                Route("/health", self.health),
                Route("/props", self.props),
                Route("/v1/models", self.models),
                Route("/tokenize", self.tokenize, methods=["POST"]),
                Route("/completion", self.completion, methods=["POST"]),
                Route("/v1/chat/completions", self.chat, methods=["POST"]),
            ]
        )

    async def health(self, _request: Request) -> Response:
        """Always ready."""
        return _json({"status": "ok"})

    async def props(self, _request: Request) -> Response:
        """What llama.cpp says of itself."""
        settings = {"n_ctx": CONTEXT}
        special = {"bos_token": "", "eos_token": "<|im_end|>"}
        return _json(
            {"total_slots": SLOTS, "default_generation_settings": settings, "chat_template": TEMPLATE, **special}
        )

    async def models(self, _request: Request) -> Response:
        """One model."""
        meta = {"n_vocab": self._tokenizer.get_vocab_size()}
        return _json({"object": "list", "data": [{"id": MODEL, "object": "model", "meta": meta}]})

    async def tokenize(self, request: Request) -> Response:
        """The ids of a text, control tokens read as such."""
        text = msgspec.json.decode(await request.body(), type=_Text).content
        return _json({"tokens": self._tokenizer.encode(text, add_special_tokens=False).ids})

    async def completion(self, request: Request) -> Response:
        """The next piece of the answer."""
        body = await request.body()
        start = body.index(b'"prompt":[') + len(b'"prompt":[')
        end = body.index(b"]", start)
        length = body.count(b",", start, end) + 1
        settings = msgspec.json.decode(b"{" + body[end + 1 :].lstrip(b", "), type=_Settings)
        at = self._position(body, start, end)
        until = len(self._answer.ids) if settings.n_predict < 0 else at + settings.n_predict
        ids = self._answer.ids[at:until]
        return _json(
            {
                "tokens": ids,
                "stop_type": "eos" if at + len(ids) == len(self._answer.ids) else "limit",
                "tokens_predicted": len(ids),
                "tokens_evaluated": length,
                "truncated": False,
                "completion_probabilities": self._entries[at:until],
                "cache_n": max(0, length - 1),
                "generation_settings": {"temperature": 1.0},
            }
        )

    async def chat(self, request: Request) -> Response:
        """The whole answer as a chat completion, with ids and log-probabilities where the body asks for ids."""
        body = await request.body()
        if b'"return_token_ids"' not in body:
            return Response(self._chat, media_type="application/json")
        prompt = min(len(body) // _CHARACTERS_PER_ID, 1 << 18)
        ids = b'{"prompt_token_ids":[' + self._many_ids[: 6 * prompt - 1] + b"],"
        return Response(ids + self._chat[1:], media_type="application/json")

    def _position(self, body: bytes, start: int, end: int) -> int:
        # An id of this vocabulary has at most five digits.
        tail = body[max(start, end - 6 * len(self._answer.ids)) : end].split(b",")[1:]
        last = [int(piece) for piece in tail]
        for length in range(min(len(last), len(self._answer.ids) - 1), 0, -1):
            if last[-length:] == self._answer.ids[:length]:
                return length
        return 0

    def _entry(self, token_id: int) -> dict[str, object]:
        token = self._tokenizer.decode([token_id], skip_special_tokens=False)
        one = {"id": token_id, "token": token, "bytes": list(token.encode()), "prob": _PROBABILITY}
        return {**one, "top_probs": [one]}

    def _chat_body(self) -> dict[str, object]:
        answer = self._answer
        function = {"name": "read_file", "arguments": json.dumps({"path": answer.path})}
        message = {
            "role": "assistant",
            "content": answer.content,
            "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
        }
        logprobs = [{"token": "t", "logprob": math.log(_PROBABILITY), "bytes": None, "top_logprobs": []}]
        choice = {
            "index": 0,
            "message": message,
            "finish_reason": "tool_calls",
            "token_ids": answer.ids,
            "logprobs": {"content": logprobs * len(answer.ids)},
        }
        usage = {"prompt_tokens": 1, "completion_tokens": len(answer.ids), "total_tokens": 1 + len(answer.ids)}
        head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": MODEL}
        return {**head, "choices": [choice], "usage": usage}


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--folder", type=Path, required=True)
    serve(Stub(options.parse_args().folder).app())
