"""Without keys: real clients are served, whatever they send of themselves, and web pages are not."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import anthropic
import google.genai
import openai
import pytest

NODE = """
const [url] = process.argv.slice(1);
const body = JSON.stringify({model: "m", messages: [{role: "user", content: "hi"}]});
fetch(url, {method: "POST", headers: {"content-type": "application/json"}, body}).then(a => console.log(a.status));
"""


@pytest.fixture
def answering(keyless: Any) -> Iterator[Any]:
    keyless.fake.answer = lambda _: keyless.ids("A<|im_end|>")
    yield keyless
    keyless.fake.forget()


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_the_sdks_of_all_dialects_are_served_under_loopbacks_names(answering: Any, name: str) -> None:
    base = answering.client.url.replace("127.0.0.1", name) + "/r/sdks"
    with openai.OpenAI(base_url=f"{base}/v1", api_key="none", max_retries=0) as client:
        assert client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}]).choices
        assert client.responses.create(model="m", input="hi").output_text == "A"
    with anthropic.Anthropic(base_url=base, api_key="none", max_retries=0) as client:
        assert client.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": "hi"}]).content
    with google.genai.Client(api_key="none", http_options=google.genai.types.HttpOptions(base_url=base)) as client:
        assert client.models.generate_content(model="m", contents="hi").text == "A"


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node here")
def test_nodes_own_fetch_is_served(answering: Any) -> None:
    url = f"{answering.client.url}/r/node/v1/chat/completions"
    done = subprocess.run(["node", "-e", NODE, url], capture_output=True, text=True, timeout=100, check=False)
    assert (done.stdout.strip(), done.stderr) == ("200", "")


def test_a_container_is_served_under_the_name_that_was_allowed(answering: Any) -> None:
    url, body = (
        f"{answering.client.url}/r/boxed/v1/chat/completions",
        {"model": "m", "messages": [{"role": "user", "content": "hi"}]},
    )
    told = answering.http.post(url, json=body, headers={"host": "host.docker.internal:7000"})
    assert told.status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "rebound.test:7000"}, {"host": "rebound.test", "origin": "http://rebound.test"},
        {"origin": "https://page.test"}, {"origin": "null"}, {"origin": "http://localhost:3000"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"},
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/rollouts"), ("GET", "/rollouts"), ("GET", "/healthz"), ("GET", "/metrics"), ("POST", "/policy/hold"),
        ("POST", "/r/page/v1/chat/completions"), ("POST", "/r/page/v1/messages"), ("GET", "/r/page/v1/models"),
        ("OPTIONS", "/rollouts"), ("OPTIONS", "/r/page/v1/chat/completions"),
    ],
)  # fmt: skip
def test_a_web_page_changes_nothing_reads_nothing_and_is_never_allowed_by_cors(
    keyless: Any, method: str, path: str, headers: dict[str, str]
) -> None:
    # As a page can send it without asking: a simple request.
    body = {"content": json.dumps({"model": "m", "messages": []}), "headers": {**headers, "content-type": "text/plain"}}
    told = keyless.http.request(method, keyless.client.url + path, **body)
    assert told.status_code == 403
    assert [name for name in told.headers if name.startswith("access-control-")] == []
    assert keyless.http.get(f"{keyless.client.url}/rollouts/page").status_code == 404


def test_no_answer_of_a_server_with_keys_lets_a_page_read_it(guarded: Any) -> None:
    asked = {"origin": "https://page.test", "access-control-request-method": "POST"}
    for method, path in (("OPTIONS", "/rollouts"), ("GET", "/healthz"), ("POST", "/rollouts"), ("GET", "/rollouts")):
        told = guarded.http.request(method, guarded.client.url + path, headers=asked)
        assert [name for name in told.headers if name.startswith("access-control-")] == []
