"""Addresses of private networks and images that are bombs, in every dialect: refused before anything is asked."""

from __future__ import annotations

import base64
import json
import struct
from typing import Any

import pytest

DIALECTS = ("openai.chat", "openai.responses", "anthropic.messages", "google.gemini")
ADDRESSES = (
    "http://127.0.0.1:{port}/a.png", "http://2130706433:{port}/a.png", "http://0x7f000001:{port}/a.png",
    "http://0177.0.0.1:{port}/a.png", "http://127.1:{port}/a.png", "http://[::ffff:127.0.0.1]:{port}/a.png",
    "http://[::1]:{port}/a.png", "http://169.254.169.254/latest/meta-data/", "http://images.test@127.0.0.1:{port}/a.png",
    "file:///etc/passwd", "ftp://127.0.0.1/a.png", "gopher://127.0.0.1:{port}/_GET", "//127.0.0.1:{port}/a.png",
)  # fmt: skip
HUGE = struct.pack(">II", 2**31 - 1, 2**31 - 1)
BOMBS = {
    "image/png": b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + HUGE + b"\x08\x06\0\0\0" + bytes(40),
    "image/gif": b"GIF89a" + b"\xff\xff\xff\xff\0\0\0" + b"," + bytes(4) + b"\xff\xff\xff\xff" + bytes(9),
    "image/webp": b"RIFF\xff\xff\xff\x7fWEBPVP8X" + struct.pack("<I", 10) + bytes(4) + b"\xff" * 6,
    "image/jpeg": b"\xff\xd8\xff\xc0\0\x11\x08\xff\xff\xff\xff\x03" + bytes(9),
}
CUT = {kind: data[:12] for kind, data in BOMBS.items()}


def shown(name: str, address: str = "", kind: str = "", data: bytes = b"") -> bytes:
    """A request of one message with one image: at an address, or with its bytes."""
    encoded = base64.b64encode(data).decode()
    url = address or f"data:{kind};base64,{encoded}"
    match name:
        case "openai.chat":
            part: Any = {"type": "image_url", "image_url": {"url": url}}
            body: Any = {"messages": [{"role": "user", "content": [part]}]}
        case "openai.responses":
            body = {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": url}]}]}
        case "anthropic.messages":
            inline = {"type": "base64", "media_type": kind, "data": encoded}
            source = {"type": "url", "url": address} if address else inline
            content = [{"type": "image", "source": source}]
            body = {"max_tokens": 9, "messages": [{"role": "user", "content": content}]}
        case _:
            inline = {"inlineData": {"mimeType": kind, "data": encoded}}
            part = {"fileData": {"mimeType": "image/png", "fileUri": address}} if address else inline
            return json.dumps({"contents": [{"role": "user", "parts": [part]}]}).encode()
    return json.dumps({"model": "m", **body}).encode()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_address_into_a_private_network_is_refused_and_nobody_is_asked(
    guarded: Any, speaking: Any, dialect: str
) -> None:
    talker = speaking.Talker(guarded, speaking.SPEAKERS[dialect], guarded.agent())
    heard = guarded.fake.begun
    for address in ADDRESSES:
        told = talker.send(shown(dialect, address.format(port=guarded.fake.port)), False)
        assert (told.status, talker.speaker.is_refusal(told.body)) == (400, True), (address, told.body)
    assert guarded.fake.begun == heard
    assert talker.calls == []


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_image_that_is_a_bomb_or_cut_is_refused_by_its_header(guarded: Any, speaking: Any, dialect: str) -> None:
    talker = speaking.Talker(guarded, speaking.SPEAKERS[dialect], guarded.agent())
    heard = guarded.fake.begun
    for files in (BOMBS, CUT):
        for kind, data in files.items():
            told = talker.send(shown(dialect, kind=kind, data=data), False)
            assert (told.status, talker.speaker.is_refusal(told.body)) == (400, True), (kind, told.body)
    assert guarded.fake.begun == heard
    assert talker.calls == []
