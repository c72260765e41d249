"""A headless browser that opens one page and tells what it saw; none of it leaves the machine."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

SECONDS = 120
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def browser() -> str:
    """The browser's path; the test is skipped where there is none."""
    for name in NAMES:
        path = shutil.which(name)
        if path is not None:
            return path
    pytest.skip(reason="no Chromium is installed (on Debian: apt-get install chromium)")


@dataclass
class Seen:
    """What a page was like in the browser.

    Attributes
    ----------
    png : bytes
        The whole page, to its end.
    size : (width, height) of the page in pixels
    wider : int
        Pixels that the page is wider than its window: 0 if it need not be scrolled sideways.
    values : what each asked expression was
    complaints : what was written to the console, and exceptions
    requests : addresses that were asked for
    """

    png: bytes
    size: tuple[int, int]
    wider: int
    values: list[Any]
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


def see(path: Path, width: int, *expressions: str, dark: bool = False, media: str = "") -> Seen:
    """Open a page in a window so many pixels wide.

    Parameters
    ----------
    path : of the page
    width : int
    *expressions : str
        JavaScript that is evaluated in it.
    dark : bool
        Whether the reader prefers dark colours.
    media : "print" or ""
    """
    with tempfile.TemporaryDirectory() as folder, _Browser(folder) as chrome:
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        for domain in ("Page", "Runtime", "Log", "Network"):
            chrome.call(f"{domain}.enable")
        chrome.call("Emulation.setEmulatedMedia", media=media, features=[feature])
        chrome.window(width, 800)
        opened = chrome.call("Page.navigate", url=path.resolve().as_uri())
        assert "errorText" not in opened, opened
        chrome.wait_for("Page.loadEventFired")
        root = "document.documentElement"
        height = chrome.value(f"{root}.scrollHeight")
        wider = chrome.value(f"{root}.scrollWidth - {root}.clientWidth")
        values = [chrome.value(one) for one in expressions]
        chrome.window(width, height)
        shot = chrome.call("Page.captureScreenshot", format="png")
        return Seen(
            base64.b64decode(shot["data"]),
            (width, height),
            wider,
            values,
            chrome.complaints,
            chrome.requests,
        )


class _Browser:
    """Chromium, spoken to through a pair of pipes: no port is opened."""

    def __init__(self, folder: str) -> None:
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        # Chromium reads from descriptor 3 and writes to 4.
        words = f'exec "$0" "$@" 3<&{to_read} 4>&{to_write}'
        self._process = subprocess.Popen(
            [
                "bash",
                "-c",
                words,
                browser(),
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--hide-scrollbars",
                "--disable-background-networking",
                "--no-first-run",
                "--remote-debugging-pipe",
                f"--user-data-dir={folder}",
                "about:blank",
            ],
            pass_fds=(to_read, to_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self._pending = b""
        self._number = 0
        self._session: str | None = None
        self._happened: list[str] = []
        self.complaints: list[str] = []
        self.requests: list[str] = []

    def __enter__(self) -> _Browser:
        pages = self.call("Target.getTargets")["targetInfos"]
        page = next(one["targetId"] for one in pages if one["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=page, flatten=True)
        self._session = attached["sessionId"]
        return self

    def __exit__(self, *error: object) -> None:
        self._session = None
        with contextlib.suppress(OSError, EOFError):
            self.call("Browser.close")
        os.close(self._write)
        os.close(self._read)
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def window(self, width: int, height: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )

    def value(self, expression: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        asked = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            asked["sessionId"] = self._session
        os.write(self._write, json.dumps(asked).encode() + b"\0")
        while True:
            told = self._next()
            if told.get("id") == self._number:
                assert "error" not in told, told["error"]
                answer: dict[str, Any] = told["result"]
                return answer

    def wait_for(self, event: str) -> None:
        while event not in self._happened:
            self._next()

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._pending:
            if not select.select([self._read], [], [], SECONDS)[0]:
                raise TimeoutError(f"the browser said nothing for {SECONDS} seconds")
            more = os.read(self._read, 1 << 20)
            if not more:
                raise EOFError("the browser has ended")
            self._pending += more
        message, _, self._pending = self._pending.partition(b"\0")
        told: dict[str, Any] = json.loads(message)
        self._note(told)
        return told

    def _note(self, told: dict[str, Any]) -> None:
        event, facts = told.get("method", ""), told.get("params", {})
        self._happened.append(event)
        if event in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
            self.complaints.append(json.dumps(facts))
        elif event == "Network.requestWillBeSent":
            self.requests.append(facts["request"]["url"])
