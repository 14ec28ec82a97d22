"""A real browser without a window, told what to do over two pipes by the DevTools protocol."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.helpers.waiting import LIMIT, wait_until

_OPTIONS = [
    "--headless=new",
    "--no-sandbox",  # tests may run as root, in a container
    "--disable-gpu",
    "--hide-scrollbars",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-extensions",
    "--disable-background-networking",
    "--remote-debugging-pipe",
]


class Chromium:
    """One browser with one tab."""

    def __init__(self, folder: Path) -> None:
        program = shutil.which("chromium") or shutil.which("chromium-browser")
        assert program is not None, (
            "the tests of pages need Chromium: .ci/system installs it, as root on a Debian"
        )
        options = [*_OPTIONS, f"--user-data-dir={folder}", "about:blank"]
        read_theirs, self._write = os.pipe()
        self._read, write_theirs = os.pipe()
        # The protocol wants these two at the numbers 3 and 4.
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{read_theirs} 4>&{write_theirs}', "chromium", program, *options],
            pass_fds=(read_theirs, write_theirs),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": str(folder)},
        )
        os.close(read_theirs)
        os.close(write_theirs)
        self._answers = os.fdopen(self._read, "rb")
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def close(self) -> None:
        """End it."""
        self._session = None
        self._call("Browser.close")
        self._process.wait(LIMIT)
        os.close(self._write)
        self._answers.close()

    def look(self, width: int, *, dark: bool = False) -> None:
        """From now on the window is that wide, and the user likes it dark."""
        self._call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, address: str) -> None:
        """Load a page."""
        assert "errorText" not in self._call("Page.navigate", url=address), address
        ready = "document.readyState === 'complete' && location.href"
        wait_until(lambda: self.evaluate(ready) not in (False, "about:blank"), what=address)

    def evaluate(self, expression: str) -> Any:
        """The value of an expression of JavaScript on the page; None while it leads to another page.

        Its policy does not concern us.
        """
        answer = self._ask("Runtime.evaluate", expression=expression, returnByValue=True)
        if answer.get("error", {}).get("message") == "Inspected target navigated or closed":
            return None
        found = _result(answer)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def picture(self, path: Path) -> None:
        """The whole page as a PNG."""
        data = self._call("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        path.write_bytes(base64.b64decode(data))

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return _result(self._ask(method, **parameters))

    def _ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                return answer

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            part = os.read(self._read, 65536)
            assert part, "Chromium has ended"
            self._buffer += part
        message, _, self._buffer = self._buffer.partition(b"\0")
        decoded: dict[str, Any] = json.loads(message)
        return decoded


def _result(answer: dict[str, Any]) -> dict[str, Any]:
    assert "error" not in answer, answer
    result: dict[str, Any] = answer["result"]
    return result
