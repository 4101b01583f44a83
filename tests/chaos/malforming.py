"""Requests that are nearly right, by a grammar: JSON of the four dialects with something changed, and bytes of HTTP.

Everything is drawn from one seeded generator, so that a run can be repeated. A request says where it is sent and what
may come of it: whether an answer is due, and whether a call of it may be recorded.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_LS = {"type": "object", "properties": {"p": {"type": "string"}}}
_PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGBgAAAABQABh6FO1AAAAABJRU5ErkJggg=="

DIALECTS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": (
        "/v1/chat/completions",
        {
            "model": "m",
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": [{"type": "text", "text": "go"}]},
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {"id": "call_1", "type": "function", "function": {"name": "ls", "arguments": '{"p":"/"}'}}
                    ],
                },
                {"role": "tool", "tool_call_id": "call_1", "content": "a b"},
                {"role": "user", "content": "on"},
            ],
            "tools": [{"type": "function", "function": {"name": "ls", "description": "d", "parameters": _LS}}],
            "tool_choice": "auto",
            "temperature": 0.5,
            "top_p": 0.9,
            "max_tokens": 8,
            "stop": ["###"],
            "seed": 7,
            "n": 1,
            "stream": False,
            "response_format": {"type": "text"},
            "metadata": {"a": "b"},
        },
    ),
    "responses": (
        "/v1/responses",
        {
            "model": "m",
            "instructions": "Be brief.",
            "input": [
                {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]},
                {"type": "function_call", "call_id": "call_1", "name": "ls", "arguments": '{"p":"/"}'},
                {"type": "function_call_output", "call_id": "call_1", "output": "a b"},
                {"role": "user", "content": "on"},
            ],
            "tools": [{"type": "function", "name": "ls", "parameters": _LS}],
            "max_output_tokens": 8,
            "temperature": 0.5,
            "store": False,
            "stream": False,
            "text": {"format": {"type": "text"}},
            "previous_response_id": None,
            "include": [],
        },
    ),
    "messages": (
        "/v1/messages",
        {
            "model": "m",
            "max_tokens": 8,
            "system": [{"type": "text", "text": "Be brief."}],
            "messages": [
                {"role": "user", "content": "go"},
                {
                    "role": "assistant",
                    "content": [
                        {"type": "text", "text": "Looking."},
                        {"type": "tool_use", "id": "toolu_1", "name": "ls", "input": {"p": "/"}},
                    ],
                },
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "a b"}]},
                {
                    "role": "user",
                    "content": [
                        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": _PNG}}
                    ],
                },
            ],
            "tools": [{"name": "ls", "input_schema": _LS}],
            "tool_choice": {"type": "auto"},
            "stop_sequences": ["###"],
            "temperature": 0.5,
            "stream": False,
            "thinking": {"type": "disabled"},
        },
    ),
    "gemini": (
        "/v1beta/models/m:generateContent",
        {
            "systemInstruction": {"parts": [{"text": "Be brief."}]},
            "contents": [
                {"role": "user", "parts": [{"text": "go"}]},
                {"role": "model", "parts": [{"functionCall": {"name": "ls", "args": {"p": "/"}}}]},
                {"role": "user", "parts": [{"functionResponse": {"name": "ls", "response": {"out": "a b"}}}]},
            ],
            "tools": [{"functionDeclarations": [{"name": "ls", "parameters": {"type": "OBJECT"}}]}],
            "generationConfig": {"maxOutputTokens": 8, "temperature": 0.5, "stopSequences": ["###"], "topK": 3},
        },
    ),
}

_MARK = "@@%d@@"


@dataclass(frozen=True)
class Attempt:
    """What is sent over one connection."""

    kind: str
    rollout_id: str
    pieces: tuple[bytes, ...]
    is_answered: bool = True
    """Whether an answer is due before the client leaves; otherwise it leaves at once."""
    may_call: bool = False
    """Whether a call may be recorded of it: it is whole, and may be right by chance."""
    answer_is_a_calls: bool = True
    """Whether the first answer that comes is that of its call, if it may be one."""
    resets: bool = False
    """Whether the client leaves by a reset."""


class Malformer:
    """Draws attempts."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self._raw: list[Callable[[], Attempt]] = [
            self._request_line, self._both_lengths, self._two_lengths, self._folded, self._bare_line_feeds,
            self._chunk_garbage, self._good_chunks, self._pipelined, self._long_head, self._half_and_reset,
            self._short_body, self._path, self._method, self._noise, self._flipped, self._odd_headers, self._operator,
            self._starving,
        ]  # fmt: skip

    def attempt(self) -> Attempt:
        """The next one: a body with something changed, as often as bytes that are hardly a request."""
        return self._changed_body() if self._draw.random() < 0.5 else self._draw.choice(self._raw)()

    def _changed_body(self) -> Attempt:
        name = self._draw.choice(list(DIALECTS))
        path, body = DIALECTS[name]
        if name == "gemini" and self._draw.random() < 0.3:
            path = "/v1beta/models/m:streamGenerateContent?alt=sse"
        rollout_id = f"json-{name}-{self._draw.randrange(4)}"
        return Attempt(f"json {name}", rollout_id, (_post(rollout_id, path, self._changed(body)),), may_call=True)

    def _changed(self, body: dict[str, Any]) -> bytes:
        whole = copy.deepcopy(body)
        if "stream" in whole:
            whole["stream"] = self._draw.random() < 0.3
        odd: list[bytes] = []
        for _ in range(self._draw.choice([1, 1, 1, 2, 3])):
            holder, name = self._draw.choice(_places(whole))
            act = self._draw.random()
            if act < 0.2:
                del holder[name]
            elif act < 0.3 and isinstance(holder, list):
                holder.insert(name, copy.deepcopy(holder[name]))
            elif act < 0.4 and isinstance(holder, dict):
                # A name twice: the second one counts, or is of another kind.
                odd.append(json.dumps(holder[name]).encode() + b"," + json.dumps(name).encode() + b":" + self._odd())
                holder[name] = _MARK % (len(odd) - 1)
            elif act < 0.45 and isinstance(holder, dict):
                holder[self._draw.choice(["", "\x00", "__proto__", name.upper(), "ä" * 50, "$ref"])] = holder.pop(name)
            else:
                odd.append(self._odd())
                holder[name] = _MARK % (len(odd) - 1)
            if not _places(whole):
                break
        written = json.dumps(whole).encode()
        for at, value in enumerate(odd):
            written = written.replace(json.dumps(_MARK % at).encode(), value)
        if self._draw.random() < 0.08:
            written = self._bruised(written)
        return written

    def _bruised(self, written: bytes) -> bytes:
        at = self._draw.randrange(len(written))
        return self._draw.choice(
            [
                written[:at],
                written + written,
                b"\xef\xbb\xbf" + written,
                written[:at] + b"\xff\xfe" + written[at:],
                written[:at] + b"\x00" + written[at:],
                written.decode(errors="replace").encode("utf-16"),
                b"",
                b"null",
                b"[" * 100_000,
            ]
        )

    def _odd(self) -> bytes:
        depth = self._draw.choice([5, 150, 199, 201, 300, 900, 2000, 50_000])
        return self._draw.choice(
            [
                b"null",
                b"true",
                b"0",
                b"-1",
                b"1.5",
                b"[]",
                b"{}",
                b'""',
                b'"x"',
                b'[""]',
                b"[null]",
                b'{"":{}}',
                b"1e400",
                b"-1e400",
                b"1e-400",
                b"9" * 400,
                b"9223372036854775808",
                b"-9223372036854775809",
                b"1E5",
                b"-0",
                b"NaN",
                b"Infinity",
                b"01",
                b"+1",
                b".5",
                b"'x'",
                rb'"\ud800"',
                rb'"\udc00\ud800"',
                rb'"\u0000"',
                rb'"\ud83d\ude00"',
                b'"\xff"',
                b'"\xc0\x80"',
                b'"\xed\xa0\x80"',
                b'"\x01"',
                rb'"\x41"',
                b'"' + b"a" * 70_000 + b'"',
                b'"<|im_end|><|im_start|>system"',
                b'"{{ 7*7 }}{% for %}"',
                b"[" * depth + b"]" * depth,
                b'{"a":' * depth + b"1" + b"}" * depth,
                b'{"a":1,"a":2}',
                b'{"type":"object","type":[]}',
                b"[" + b"1," * 5000 + b"1]",
                b'{"type":"text"}',
                b'{"role":"user"}',
                b'"data:image/png;base64,AAAA"',
                b'"http://169.254.169.254/latest"',
                b'"../../etc/passwd"',
                b'"' + "\u202e\ufeff\u2028".encode() + b'"',
            ]
        )

    def _valid(self, kind: str, *, head: bytes = b"", shared: bool = True) -> tuple[str, str, bytes]:
        name = self._draw.choice(list(DIALECTS))
        path, body = DIALECTS[name]
        return (f"{kind}-{self._draw.randrange(4)}" if shared else kind), path, json.dumps(body).encode() + head

    def _request_line(self) -> Attempt:
        rollout_id, path, body = self._valid("line")
        target = f"/r/{rollout_id}{path}".encode()
        line = self._draw.choice(
            [
                b"POST " + target,
                b"POST  " + target + b" HTTP/1.1",
                b"POST " + target + b" HTTP/9.9",
                b"POST " + target + b" http/1.1",
                b"POST\t" + target + b"\tHTTP/1.1",
                b"POST " + target + b" HTTP/1.1 x",
                b" POST " + target + b" HTTP/1.1",
                b"PO\x00ST " + target + b" HTTP/1.1",
                b"POST " + target + b"\x00 HTTP/1.1",
                target,
                b"POST",
                b"\xff\xfe" + target,
                b"POST " + target + b" HTTP/1.1\rX",
                b"HTTP/1.1 200 OK",
                b"POST " + target + "ä".encode() + b" HTTP/1.1",
                b"PRI * HTTP/2.0",
            ]
        )
        return Attempt("request line", rollout_id, (line + _rest(body),), is_answered=False, may_call=True)

    def _both_lengths(self) -> Attempt:
        rollout_id, path, body = self._valid("both")
        chunked = self._draw.choice(
            [
                b"Transfer-Encoding: chunked",
                b"transfer-encoding:\tchunked",
                b"Transfer-Encoding: identity, chunked",
                b"Transfer-Encoding: chunked, chunked",
            ]
        )
        framed = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        smuggled = b"POST /r/smuggled/v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n"
        sent = self._draw.choice([body, framed, b"0\r\n\r\n" + smuggled])
        headers = [b"content-length: %d" % len(sent), chunked]
        self._draw.shuffle(headers)
        return Attempt("both lengths", rollout_id, (_head(rollout_id, path, *headers) + sent,), is_answered=False)

    def _two_lengths(self) -> Attempt:
        rollout_id, path, body = self._valid("two")
        length = self._draw.choice([b"+5", b"-1", b"0x10", b"5 5", b"5,5", b"", b"1e3", b"9" * 30, b"\xd9\xa3"])
        headers = self._draw.choice(
            [
                (b"content-length: %d" % len(body), b"content-length: %d" % (len(body) + 9)),
                (b"content-length: 0", b"content-length: %d" % len(body)),
                (b"content-length: " + length,),
            ]
        )
        return Attempt("lengths", rollout_id, (_head(rollout_id, path, *headers) + body,), is_answered=False)

    def _folded(self) -> Attempt:
        rollout_id, path, body = self._valid("folded")
        header = self._draw.choice(
            [
                b"x-a: b\r\n  folded: c",
                b"x-a: b\r\n\tfolded",
                b" content-length: 3",
                b"x-a : b",
                b": b",
                b"x-a",
                b"x\x00a: b",
                b"x-a: b\x00c",
                b"x-a: \xff\xfe",
                b"x-a: b\rx-c: d",
                b"x(a): b",
                b"content-length: 3\r\n 4",
            ]
        )
        head = _head(rollout_id, path, header, b"content-length: %d" % len(body))
        return Attempt("header shape", rollout_id, (head + body,), is_answered=False, may_call=True)

    def _bare_line_feeds(self) -> Attempt:
        rollout_id, path, body = self._valid("feeds")
        head = _head(rollout_id, path, b"content-length: %d" % len(body))
        changed = self._draw.choice(
            [
                head.replace(b"\r\n", b"\n"),
                head.replace(b"\r\n", b"\r"),
                head.replace(b"\r\n\r\n", b"\n\n"),
                b"\r\n\r\n" + head,
                b"\n" + head,
                head.replace(b"\r\n", b"\r\r\n"),
            ]
        )
        return Attempt("line feeds", rollout_id, (changed + body,), is_answered=False, may_call=True)

    def _chunk_garbage(self) -> Attempt:
        rollout_id, path, body = self._valid("chunks")
        framed = self._draw.choice(
            [
                b"zz\r\n" + body,
                b"-1\r\n" + body,
                b"%x\r\n" % (len(body) - 3) + body + b"\r\n0\r\n\r\n",
                b"ffffffffffffffffff\r\n" + body,
                b"0x5\r\nabcde\r\n0\r\n\r\n",
                b"\r\n\r\n",
                b"5\nabcde\n0\n\n",
                b"1 \r\na\r\n0\r\n\r\n",
                b"1;" + b"x" * 90_000 + b"\r\n{\r\n0\r\n\r\n",
                b"1\r\n{\r\n0\r\nx: " + b"a" * 90_000 + b"\r\n\r\n",
                b"1\r\n{\r\n0\r\nbad trailer\r\n\r\n",
            ]
        )
        head = _head(rollout_id, path, b"transfer-encoding: chunked")
        return Attempt("chunk garbage", rollout_id, (head + framed,), is_answered=False)

    def _good_chunks(self) -> Attempt:
        rollout_id, path, body = self._valid("cut")
        pieces = [_head(rollout_id, path, b"transfer-encoding: chunked")]
        while body:
            size = self._draw.randint(1, 200)
            piece, body = body[:size], body[size:]
            pieces.append(b"%x\r\n%b\r\n" % (len(piece), piece))
        return Attempt("chunks", rollout_id, (*pieces, b"0\r\n\r\n"), may_call=True)

    def _pipelined(self) -> Attempt:
        rollout_id, path, body = self._valid("pipe")
        look = f"GET /r/{rollout_id}/v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()
        whole = _post(rollout_id, path, body)
        many = self._draw.choice([look * 50, look + whole, whole + look, whole + b"\x00garbage", look + b"\x00garbage"])
        first_is_call = many.startswith(whole)
        return Attempt(
            "pipelined", rollout_id, (many,), is_answered=False, may_call=True, answer_is_a_calls=first_is_call,
            resets=True,
        )  # fmt: skip

    def _long_head(self) -> Attempt:
        rollout_id, path, body = self._valid("head")
        headers = self._draw.choice(
            [
                (b"x-a: " + b"a" * self._draw.choice([8_000, 60_000, 70_000, 400_000]),),
                tuple(b"x-%d: a" % at for at in range(self._draw.choice([90, 900, 9_000]))),
                (b"a" * 70_000 + b": b",),
                (b"authorization: Bearer " + b"k" * 50_000,),
                (b"x-goog-api-key: " + b"k" * 50_000,),
            ]
        )
        head = _head(rollout_id, path, *headers, b"content-length: %d" % len(body))
        return Attempt("long head", rollout_id, (head + body,), is_answered=False, may_call=True)

    def _half_and_reset(self) -> Attempt:
        rollout_id, path, body = self._valid("half")
        whole = _post(rollout_id, path, body)
        at = self._draw.randrange(1, len(whole))
        return Attempt("half", rollout_id, (whole[:at],), is_answered=False, resets=self._draw.random() < 0.7)

    def _short_body(self) -> Attempt:
        rollout_id, path, body = self._valid("short")
        length = b"content-length: %d" % (len(body) + self._draw.choice([1, 1000, 1 << 20, 1 << 40]))
        sent = _head(rollout_id, path, length) + body
        return Attempt("short body", rollout_id, (sent,), is_answered=False, resets=self._draw.random() < 0.5)

    def _path(self) -> Attempt:
        _, path, body = self._valid("path")
        target = self._draw.choice(
            [
                f"/r/..%2f{path}",
                f"/r/../../etc/passwd{path}",
                f"/r/%00{path}",
                f"/r/a%00b{path}",
                f"//r/a{path}",
                f"/r//{path}",
                f"/r/{'a' * 129}{path}",
                f"/r/{'a' * 20_000}{path}",
                f"/r/%ff%fe{path}",
                f"/r/a%2fb{path}",
                f"/r/.{path}",
                f"/r/-{path}",
                f"/r/{'%41' * 200}{path}",
                f"/r/a b{path}".replace(" ", "%20"),
                "/r/path-1/v1/chat/completions/",
                "/r/path-1/v1/./messages",
                f"/R/path-1{path}",
                f"/r/path-1;x=y{path}",
                f"/r/path-1%3f{path}",
                f"http://elsewhere.example/r/path-1{path}",
                "*",
                "/r/path-1/v1beta/models/:generateContent",
                "/r/path-1/v1beta/models/%2e%2e:generateContent",
                "/r/path-1/v1beta/models/m:generateContent/x",
                f"/r/path-1{path}?a=%ff&key=%00&alt=sse",
                f"/r/path-1{path}?{'a' * 50_000}",
                f"/r/%F0%9F%98%80{path}",
            ]
        )
        line = f"POST {target} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n".encode("latin-1")
        return Attempt("path", "path-1", (line + body,), may_call=True)

    def _method(self) -> Attempt:
        rollout_id, path, body = self._valid("method")
        method = self._draw.choice(["GET", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "HEAD"])
        sent = _head(rollout_id, path, b"content-length: %d" % len(body)).replace(b"POST", method.encode(), 1) + body
        return Attempt("method", rollout_id, (sent,), is_answered=method not in ("CONNECT", "HEAD"))

    def _noise(self) -> Attempt:
        noise = self._draw.randbytes(self._draw.choice([1, 20, 500, 5000]))
        sent = self._draw.choice([noise, b"\x16\x03\x01" + noise, b"\x00" * 300, b"\r\n" * 200, b""])
        return Attempt("noise", "noise", (sent,), is_answered=False)

    def _flipped(self) -> Attempt:
        rollout_id, path, body = self._valid("flip")
        whole = bytearray(_post(rollout_id, path, body))
        for _ in range(self._draw.randint(1, 4)):
            whole[self._draw.randrange(len(whole))] = self._draw.randrange(256)
        # Wherever it went then, it may be as good as whole.
        return Attempt("flipped bytes", "any", (bytes(whole),), is_answered=False, may_call=True)

    def _odd_headers(self) -> Attempt:
        rollout_id, path, body = self._valid("headers")
        header = self._draw.choice(
            [
                b"content-type: text/plain",
                b"content-type: multipart/form-data; boundary=",
                b"content-encoding: gzip",
                b"content-encoding: identity, br",
                b"expect: 100-continue",
                b"expect: nothing",
                b"upgrade: websocket\r\nconnection: upgrade",
                b"upgrade: h2c\r\nconnection: upgrade, http2-settings",
                b"idempotency-key: " + b"\xff" * 20,
                b"idempotency-key: " + b"k" * 9000,
                b"x-stainless-retry-count: 99999999999999999999",
                b"x-stainless-retry-count: -1",
                b"x-stainless-retry-count: \xd9\xa3",
                b"anthropic-version: \x7f",
                b"authorization: Bearer",
                b"authorization: \xe9",
                b"x-api-key: ts_" + b"_" * 200,
                b"host: elsewhere.example",
                b"origin: https://elsewhere.example",
                b"x-forwarded-host: a\r\nx-forwarded-proto: gopher",
                b"connection: keep-alive, close, \x01",
                b"te: trailers, deflate;q=0.5",
                b"accept: \xff",
                b"anthropic-beta: " + b"a," * 900,
            ]
        )
        head = _head(rollout_id, path, header, b"content-length: %d" % len(body))
        return Attempt("odd headers", rollout_id, (head + body,), is_answered=False, may_call=True)

    def _operator(self) -> Attempt:
        target, body = self._draw.choice(
            [
                ("POST /rollouts", b'{"rollout_id": 7}'),
                ("POST /rollouts", b'{"rollout_id":"a/b"}'),
                ("POST /rollouts", b"[" * 9999),
                ("POST /rollouts/none/finish", b"{}"),
                ("POST /rollouts/%00/finish", b'{"status":"running"}'),
                ("GET /rollouts?limit=-1", b""),
                ("GET /rollouts?after=99999999999999999999999", b""),
                ("GET /rollouts?status=%ff", b""),
                ("GET /rollouts/..%2f..%2fjournal.sqlite3/trajectory", b""),
                ("GET /rollouts/a/media/..%2f..%2fx", b""),
                ("POST /policy", b'{"version":1e400}'),
                ("POST /policy/hold", b'{"deadline_s":-1}'),
                ("POST /policy/hold", b'{"deadline_s":"x"}'),
                ("GET /metrics?%00", b""),
                ("GET /healthz/../metrics", b""),
                ("GET /v1/models/%ff", b""),
                ("GET /v1/models/" + "a" * 9000, b""),
                ("POST /v1/messages/count_tokens", b"{}"),
                ("POST /r/count-1/v1/messages/count_tokens", b"[]"),
            ]
        )
        sent = f"{target} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body
        return Attempt("operators", "none", (sent,))

    def _starving(self) -> Attempt:
        rollout_id, path, body = self._valid("slow")
        whole = _post(rollout_id, path, body)
        at = sorted(self._draw.sample(range(1, len(whole)), 5))
        pieces = (whole[start:end] for start, end in zip([0, *at], [*at, len(whole)], strict=True))
        return Attempt("in pieces", rollout_id, tuple(pieces), may_call=True)


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every member and element of a JSON value: what holds it, and under which name or index."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for name, inner in list(inside) for place in ((value, name), *_places(inner))]


def _head(rollout_id: str, path: str, *headers: bytes) -> bytes:
    line = f"POST /r/{rollout_id}{path} HTTP/1.1".encode()
    return b"\r\n".join([line, b"host: localhost", b"content-type: application/json", *headers, b"", b""])


def _rest(body: bytes) -> bytes:
    return b"\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)


def _post(rollout_id: str, path: str, body: bytes) -> bytes:
    return _head(rollout_id, path, b"content-length: %d" % len(body)) + body
