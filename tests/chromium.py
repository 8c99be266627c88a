"""A headless Chromium that tests look at a page with, driven by its DevTools protocol over two pipes.

https://chromedevtools.github.io/devtools-protocol/: messages of JSON, each with a zero byte behind it, which
`--remote-debugging-pipe` reads from descriptor 3 and writes to 4.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests import patience

PACKAGE, PROGRAM = "chromium", "chromium"

_FLAGS = (
    "--headless",
    "--no-sandbox",  # root has none
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--proxy-server=127.0.0.1:9",  # refuses: what asks for something gets nothing
    "--remote-debugging-pipe",
)

_AT_3_AND_4 = """
import fcntl, os, sys
pipes = [fcntl.fcntl(int(one), fcntl.F_DUPFD, 10) for one in sys.argv[1:3]]
for number, pipe in zip((3, 4), pipes):
    os.dup2(pipe, number)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""Puts the two pipes where Chromium looks for them, and becomes it."""


class Chromium:
    """A browser with one tab."""

    def __init__(self, program: Path, folder: Path):
        """`folder`: for its profile."""
        self.events: list[dict[str, Any]] = []
        """What the tab has reported since the page was opened."""
        self._numbers = itertools.count(1)
        self._rest = b""
        self._sockets = tempfile.mkdtemp(prefix="castoff-")  # whose paths the kernel wants short
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-c", _AT_3_AND_4, str(to_read), str(to_write)),
                *(str(program), *_FLAGS, f"--user-data-dir={folder}", "about:blank"),
            ],
            pass_fds=(to_read, to_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "TMPDIR": self._sockets},
            start_new_session=True,
        )
        os.close(to_read)
        os.close(to_write)
        self._session: str | None = None
        pages = [one for one in self.call("Target.getTargets")["targetInfos"] if one["type"] == "page"]
        to = self.call("Target.attachToTarget", targetId=pages[0]["targetId"], flatten=True)
        self._session = to["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        """End it, and what it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._write)
        os.close(self._read)
        shutil.rmtree(self._sockets, ignore_errors=True)

    def open(self, path: Path, *, width: int = 1200, dark: bool = False, height: int = 900) -> None:
        """Show a file, as a screen of this size and with this theme does."""
        self.show(width=width, dark=dark, height=height)
        self.call("Page.navigate", url="about:blank")
        self.events.clear()
        self.call("Page.navigate", url=path.as_uri())
        self.wait_for("document.readyState === 'complete' && location.protocol === 'file:'")

    def show(self, *, width: int = 1200, dark: bool = False, height: int = 900) -> None:
        """Change the screen."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            **{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500},
        )
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[theme])

    def value(self, expression: str) -> Any:
        """What JavaScript computes in the page."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait_for(self, condition: str) -> None:
        """Wait until JavaScript finds something true."""
        patience.until(lambda: self.value(condition), f"the page never came to {condition}")

    def press(self, key: str) -> None:
        """Press a key and release it."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key)

    def drag(self, begin: tuple[float, float], end: tuple[float, float]) -> None:
        """Move the mouse with its button pressed."""
        self._mouse("mouseMoved", begin)
        self._mouse("mousePressed", begin)
        self._mouse("mouseMoved", end)
        self._mouse("mouseReleased", end)

    def _mouse(self, kind: str, place: tuple[float, float]) -> None:
        x, y = place
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def screenshot(self) -> bytes:
        """The whole page as PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"])

    def pdf(self) -> bytes:
        """The page as it is printed."""
        return base64.b64decode(self.call("Page.printToPDF", printBackground=False)["data"])

    def complaints(self) -> list[str]:
        """Errors of scripts, refusals of the page's policy, and whatever else was reported."""
        found = []
        for event in self.events:
            if event["method"] == "Runtime.exceptionThrown":
                found.append(event["params"]["exceptionDetails"]["exception"]["description"])
            elif event["method"] == "Log.entryAdded":
                found.append(event["params"]["entry"]["text"])
            elif event["method"] == "Runtime.consoleAPICalled":
                found.append(str(event["params"]["args"]))
        return found

    def requests(self) -> list[str]:
        """The addresses that the page has asked for, beside its own."""
        asked = [
            event["params"]["request"]["url"]
            for event in self.events
            if event["method"] == "Network.requestWillBeSent"
        ]
        return asked[1:]

    def refused(self) -> list[str]:
        """The requests that the page's policy has stopped, by their numbers."""
        failed = [event["params"] for event in self.events if event["method"] == "Network.loadingFailed"]
        return [one["requestId"] for one in failed if one.get("blockedReason") == "csp"]

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A command of the protocol, and its answer."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._message()
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result
            if "method" in answer:
                self.events.append(answer)

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._read], [], [], patience.SECONDS)
            assert ready, "Chromium does not answer"
            more = os.read(self._read, 1 << 20)
            assert more, f"Chromium ended with {self._process.wait()}"
            self._rest += more
        message, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found
