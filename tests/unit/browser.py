"""Chromium without a window, driven over its DevTools protocol. ``CHROMIUM`` names another binary."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")


class Browser:
    """One page. ``profile`` keeps what a page stores between visits, as a user's browser does."""

    def __init__(self, profile: Path, downloads: Path, width: int = 1280, height: int = 900):
        import websocket

        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage",
                 "--remote-debugging-port=0", "--remote-allow-origins=*", "--host-resolver-rules=MAP * ~NOTFOUND",
                 f"--user-data-dir={profile}", f"--window-size={width},{height}", "about:blank"]  # fmt: skip
        (profile / "DevToolsActivePort").unlink(missing_ok=True)
        self.process = subprocess.Popen([str(CHROMIUM), *flags], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.port = self.wait(lambda: (profile / "DevToolsActivePort").read_text().splitlines()[0])
        pages = self.wait(lambda: json.load(urllib.request.urlopen(f"http://127.0.0.1:{self.port}/json", timeout=5)))
        page = next(page for page in pages if page["type"] == "page")
        self.socket = websocket.create_connection(page["webSocketDebuggerUrl"], timeout=60)
        self.number, self.downloads = 0, downloads
        self.call("Page.enable")
        self.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(downloads))

    @staticmethod
    def wait(ready, seconds: float = 60.0) -> Any:
        """What ``ready`` returns, as soon as it raises nothing."""
        end = time.monotonic() + seconds
        while True:
            try:
                return ready()
            except (OSError, IndexError, AssertionError):
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)

    def call(self, method: str, **parameters: Any) -> Any:
        """One command; answers of the page in between are passed over."""
        self.number += 1
        self.socket.send(json.dumps({"id": self.number, "method": method, "params": parameters}))
        while True:
            told = json.loads(self.socket.recv())
            if told.get("id") == self.number:
                if "error" in told:
                    raise RuntimeError(f"{method}: {told['error']}")
                return told["result"]

    def open(self, path: Path) -> None:
        """Load a file and wait for it."""
        self.call("Page.navigate", url=path.as_uri())
        self.wait(lambda: self._loaded())

    def _loaded(self) -> None:
        assert self.js("document.readyState === 'complete' && location.protocol === 'file:'")

    def js(self, expression: str) -> Any:
        """The value of an expression in the page."""
        told = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in told:
            raise RuntimeError(told["exceptionDetails"].get("exception", {}).get("description", expression))
        return told["result"].get("value")

    def press(self, key: str) -> None:
        """A key of the keyboard."""
        named = {"Tab": {"code": "Tab", "windowsVirtualKeyCode": 9}}
        typed = named.get(key, {"text": key, "windowsVirtualKeyCode": ord(key[0].upper())})
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **typed)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, **{k: v for k, v in typed.items() if k != "text"})

    def downloaded(self, ending: str) -> Path:
        """The file that a click has saved."""

        def there() -> Path:
            return next(iter(sorted(self.downloads.glob(f"*{ending}"))), None) or _missing()

        return self.wait(there, 20)

    def picture(self, path: Path) -> None:
        """What the page looks like."""
        import base64

        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def close(self) -> None:
        """End the browser as a user does, so that it keeps what pages stored."""
        try:
            self.call("Browser.close")
        except Exception:  # it may be gone before it answers
            self.process.terminate()
        self.socket.close()
        self.process.wait(30)


def _missing() -> Path:
    raise AssertionError("nothing was saved")
