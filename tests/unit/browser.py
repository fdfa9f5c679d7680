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
from urllib.parse import urlencode

# Waits for two frames, so that what was changed has been drawn.
FRAME = "const frame = () => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));"
# Through the inspector's list in forty leaps: milliseconds of the slowest two frames, and the most rows drawn at once.
SCROLL = (
    "(async () => {"
    + FRAME
    + """
  const list = document.getElementById("decisions");
  let slowest = 0, most = 0;
  for (let i = 0; i < 40; i++) {
    list.scrollTop = i * list.scrollHeight / 40;
    const before = performance.now();
    await frame();
    slowest = Math.max(slowest, performance.now() - before);
    most = Math.max(most, document.getElementById("rows").childElementCount);
  }
  return [slowest, most];
})()"""
)
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")


def read_data(site: Path, name: str) -> Any:
    """The value in a script of the inspector, which hands it to the page."""
    text = (site / f"{name}.js").read_text(encoding="utf-8")
    return json.loads(text.removeprefix(f"inspector.take({json.dumps(name)},").removesuffix(");\n"))


class Refused(Exception):
    """A command that the browser cannot do now: it says so while one page gives way to another."""


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
            except (OSError, IndexError, AssertionError, Refused):
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
                    raise Refused(f"{method}: {told['error']}")
                return told["result"]

    def open(self, path: Path) -> None:
        """Load a file and wait for it."""
        self.call("Page.navigate", url=path.as_uri())
        self.wait(lambda: self._loaded())

    def _loaded(self) -> None:
        assert self.js("document.readyState === 'complete' && location.protocol === 'file:'")

    def inspect(self, site: Path, **place: object) -> None:
        """Open the inspector at a place and wait until it answers."""
        self.call("Page.navigate", url=f"{(site / 'index.html').as_uri()}#{urlencode(place)}")
        self.wait(self.answers)

    def answers(self) -> None:
        """Raises AssertionError as long as the inspector does not answer."""
        assert self.js("document.documentElement?.dataset.ready ?? null") is not None

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
