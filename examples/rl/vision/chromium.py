"""Headless Chromium as a set of tabs with the page in each, driven over a pipe by its own protocol.

Standard library only: the pipe carries JSON messages that end with a zero byte. A screenshot waits for frames and takes
about 40 ms; eight tabs side by side give one every 5 ms, at 7 ms of a core each.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import queue
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vision.screen import CELL, SCREEN, Task

PAGE = Path(__file__).with_name("page.html")
PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
    "--force-device-scale-factor=1", "--force-color-profile=srgb", "--disable-lcd-text", "--remote-debugging-pipe",
)  # fmt: skip
LIMIT_S = 120.0
"""For one answer of the browser, on a machine that may be busy."""


def program() -> str | None:
    """Chromium's program on this machine; None if there is none."""
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


class Browser:
    """One Chromium. Methods may be called from any thread; each answer goes to who asked."""

    def __init__(self, path: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="desk-", ignore_cleanup_errors=True)
        to_child, self._write = os.pipe()
        self._read, from_child = os.pipe()
        # The protocol's pipe is file 3 to read and 4 to write; a shell puts them there.
        words = [path, *FLAGS, f"--user-data-dir={self._folder.name}", "about:blank"]
        redirect = f'exec "$@" 3<&{to_child} 4>&{from_child}'
        self._process = subprocess.Popen(
            ["bash", "-c", redirect, "bash", *words],
            pass_fds=(to_child, from_child),
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_child)
        os.close(from_child)
        self._lock = threading.Lock()
        self._waiting: dict[int, queue.SimpleQueue[dict[str, Any]]] = {}
        self._asked = 0
        self._reader = threading.Thread(target=self._receive, daemon=True)
        self._reader.start()

    def ask(self, method: str, session: str = "", **parameters: object) -> dict[str, Any]:
        """One command and its result. Raises: RuntimeError if the browser refuses it, is gone, or does not answer."""
        answer: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        with self._lock:
            self._asked += 1
            number = self._asked
            self._waiting[number] = answer
            message = {"id": number, "method": method, "params": parameters} | (
                {"sessionId": session} if session else {}
            )
            os.write(self._write, json.dumps(message).encode() + b"\0")
        try:
            found = answer.get(timeout=LIMIT_S)
        except queue.Empty:
            raise RuntimeError(f"Chromium did not answer {method} within {LIMIT_S:.0f} s") from None
        if "error" in found:
            raise RuntimeError(f"Chromium refused {method}: {found['error']}")
        return found["result"]

    def _receive(self) -> None:
        rest = b""
        while data := os.read(self._read, 1 << 20):
            *messages, rest = (rest + data).split(b"\0")
            for each in map(json.loads, messages):
                if (waiting := self._waiting.pop(each.get("id", 0), None)) is not None:
                    waiting.put(each)
        for waiting in list(self._waiting.values()):
            waiting.put({"error": "it has ended"})

    def close(self) -> None:
        """End it, and the processes that it started: they hold the other end of the pipe."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join(LIMIT_S)
        os.close(self._write)
        os.close(self._read)
        self._folder.cleanup()


class Tab:
    """The page in a tab: what an agent's harness looks at and acts on."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        target = browser.ask("Target.createTarget", url="about:blank", width=SCREEN, height=SCREEN)["targetId"]
        self._session = browser.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._ask("Emulation.setDeviceMetricsOverride", width=SCREEN, height=SCREEN, deviceScaleFactor=1, mobile=False)
        self._ask("Emulation.setFocusEmulationEnabled", enabled=True)
        frame = self._ask("Page.getFrameTree")["frameTree"]["frame"]["id"]
        self._ask("Page.setDocumentContent", frameId=frame, html=PAGE.read_text(encoding="utf-8"))

    def _ask(self, method: str, **parameters: object) -> dict[str, Any]:
        return self._browser.ask(method, self._session, **parameters)

    def _run(self, script: str) -> Any:
        found = self._ask("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in found:
            raise RuntimeError(f"the page could not run {script}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def start(self, task: Task) -> None:
        """The page as it is before the first action."""
        self._run(f"start({task.seed}, {json.dumps(task.colour)}, {json.dumps(task.code)})")

    def screenshot(self) -> bytes:
        """A PNG of `SCREEN` x `SCREEN` pixels."""
        return base64.b64decode(self._ask("Page.captureScreenshot", format="png", optimizeForSpeed=True)["data"])

    def click(self, column: int, row: int) -> None:
        """The left mouse button, in the middle of a cell."""
        at: dict[str, object] = {"x": column * CELL + CELL // 2, "y": row * CELL + CELL // 2}
        for kind in ("mousePressed", "mouseReleased"):
            self._ask("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **at)

    def type(self, text: str) -> None:
        """Text for whatever has the focus."""
        if text:
            self._ask("Input.insertText", text=text)

    def stage(self) -> int:
        """Read from the page's own state."""
        return int(self._run("state().stage"))


class Tabs:
    """A few tabs that many agents take turns with: an agent has one for a whole episode."""

    def __init__(self, path: str, count: int) -> None:
        self._browser = Browser(path)
        self._free: queue.SimpleQueue[Tab] = queue.SimpleQueue()
        for _ in range(count):
            self._free.put(Tab(self._browser))

    @contextmanager
    def computer(self, task: Task) -> Iterator[Tab]:
        """A tab with the task's page, as soon as one is free."""
        tab = self._free.get()
        try:
            tab.start(task)
            yield tab
        finally:
            self._free.put(tab)

    def close(self) -> None:
        """End the browser."""
        self._browser.close()
