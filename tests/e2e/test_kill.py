"""Public case F4: `turnstile serve` is killed in mid-turn and started again on the same store."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from turnstile.cli import app
from turnstile.client import Client
from turnstile.history.forest import Forest
from turnstile.reasons import FailReason
from turnstile.store import Reader
from turnstile.trajectory.files import read
from turnstile.trajectory.validate import validate_file

pytestmark = pytest.mark.engine

TEXTS = ("Tell me of the sea.", "And of the sky?", "And of the wind?", "Which do you like?")


def ask(url: str, messages: list[dict[str, Any]]) -> httpx.Response:
    body = {"model": "smol", "messages": messages, "max_tokens": 12, "temperature": 1.0}
    return httpx.post(f"{url}/r/killed/v1/chat/completions", json=body, timeout=60, trust_env=False)


def test_case_f4_after_a_kill_the_rollout_goes_on_with_every_committed_turn(
    serve: Callable[..., Any], tap: Any, llama: Any, model_folder: Path, tmp_path: Path, wires: Any
) -> None:
    store, out = tmp_path / "store", tmp_path / "out.jsonl"
    options = ["--engine", tap.url, "--model", "smol", "--tokenizer", str(model_folder), "--store", str(store)]
    tap.exchanges.clear()
    first = serve(*options)
    messages: list[dict[str, Any]] = []
    for text in TEXTS[:2]:
        messages.append({"role": "user", "content": text})
        messages.append(ask(first.url, messages).json()["choices"][0]["message"])
    messages.append({"role": "user", "content": TEXTS[2]})
    before = len(tap.exchanges)
    with ThreadPoolExecutor(1) as pool:
        tap.delay_s = 0.3
        try:
            cut = pool.submit(ask, first.url, messages)
            # The engine has answered a part of the turn.
            wires.eventually(lambda: len(tap.exchanges) > before)
            first.kill()
        finally:
            tap.delay_s = 0.0
        with pytest.raises(httpx.TransportError):
            cut.result(20)

    second = serve(*options)
    third = ask(second.url, messages)
    messages += [third.json()["choices"][0]["message"], {"role": "user", "content": TEXTS[3]}]
    fourth = ask(second.url, messages)
    assert [answer.headers["x-turnstile-history"] for answer in (third, fourth)] == ["spliced", "spliced"]
    with Client(second.url) as client:
        client.post("/rollouts/killed/finish", {"reward": 1.0})

    with Reader.open(store) as reader:
        forest = Forest.of(reader.records("killed"))
    states = list(forest.calls.values())
    assert [state.committed is not None for state in states] == [True, True, False, True, True]
    assert states[2].failed is not None
    assert states[2].failed.reason is FailReason.INTERRUPTED
    exporting = CliRunner().invoke(app, ["export", str(store), "-o", str(out)])
    assert exporting.exit_code == 0, exporting.output
    assert [str(found) for found in validate_file(out) if found.code.startswith("E")] == []
    (rollout,) = read(out)
    assert (rollout.status, rollout.reward) == ("completed", 1.0)
    (sequence,) = rollout.sequences
    # The engine's last prompt and what it sampled there are the whole sequence: no id was lost or changed.
    asked, _ = next(each for each in reversed(tap.exchanges) if each[0]["prompt"])
    assert sequence.token_ids.tolist()[: len(asked["prompt"])] == asked["prompt"]
    assert len({part.call for part, _ in sequence.sampled_segments()}) == len(TEXTS)
