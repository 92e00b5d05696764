"""A real headless browser for tests of pages. Tests drive it by the Chrome DevTools protocol."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from websockets.sync.client import connect

from tests.support.programs import require
from tests.support.waiting import wait_for

PATIENCE = 60


class Browser:
    """A browser with one page. It ends with the `with` block."""

    def __init__(self, size: tuple[int, int] = (1280, 1600)):
        program = require("chromium")
        self._folder = tempfile.TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True)
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", "--hide-scrollbars"]
        options += [f"--window-size={size[0]},{size[1]}", f"--user-data-dir={self._folder.name}", "about:blank"]
        self._process = subprocess.Popen(
            [program, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        self._numbers, self._open = itertools.count(1), contextlib.ExitStack()

    def __enter__(self) -> Browser:
        file = Path(self._folder.name) / "DevToolsActivePort"
        port, path = wait_for(lambda: file.exists() and file.read_text().split(), PATIENCE)
        self._socket = self._open.enter_context(connect(f"ws://127.0.0.1:{port}{path}", max_size=None, proxy=None))
        self._session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()
        self._process.kill()
        self._process.wait()
        self._folder.cleanup()

    def call(self, method: str, **params: Any) -> dict:
        """Send a command of the protocol and return its answer. LookupError: the browser refused it."""
        number = next(self._numbers)
        sent = {"id": number, "method": method, "params": params}
        self._socket.send(json.dumps(sent | ({"sessionId": self._session} if self._session else {})))
        while True:
            answer = json.loads(self._socket.recv(PATIENCE))
            if answer.get("id") == number:
                if "error" in answer:
                    raise LookupError(answer["error"]["message"])
                return answer["result"]

    def go(self, url: str) -> None:
        """Open a page."""
        self.call("Page.navigate", url=url)

    def ask(self, script: str) -> Any:
        """The value of a JavaScript expression in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise LookupError(answer["result"].get("description"))
        return answer["result"].get("value")

    def wait(self, script: str) -> Any:
        """Wait until an expression is true, because a page loads in steps, and return its value."""

        def value() -> Any:
            with contextlib.suppress(LookupError):
                return self.ask(script)

        return wait_for(value, PATIENCE)

    def click(self, script: str) -> None:
        """Click in the middle of the element that an expression returns."""
        at = self.wait(
            f"(() => {{ const e = {script}; if (!e) return null; e.scrollIntoView({{block: 'center'}}); "
            "const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2] })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=at[0], y=at[1], button="left", clickCount=1)

    def type(self, text: str) -> None:
        """Type into the element that has the focus."""
        self.call("Input.insertText", text=text)

    def press(self, key: str) -> None:
        """Press a key, such as `Enter`."""
        code = {"Enter": 13, "Tab": 9, "Escape": 27, "Backspace": 8}[key]
        text = {"Enter": "\r"}.get(key, "")
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, text=text)

    def shot(self, path: Path) -> None:
        """Save a picture of the window."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
