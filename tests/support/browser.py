"""A headless Chromium, driven over its own protocol: enough to test pages and to make pictures of them."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from aiohttp import ClientSession, ClientWebSocketResponse, WSMsgType

T = TypeVar("T")

NAMES = ("chromium", "chromium-browser", "google-chrome")
ABSENT = "there is no Chromium to test pages in: apt-get install chromium"
PATIENCE = 180.0
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage", "--hide-scrollbars",
    "--remote-debugging-port=0", "--window-size=1360,1000",
)  # fmt: skip


def chromium() -> str | None:
    """Return where Chromium is; None where it is not."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """One tab, and all that happens in it: ``with Browser() as browser: browser.open(url)``.

    Every event of the protocol is kept in `events`.
    """

    def __init__(self) -> None:
        found = chromium()
        if found is None:
            raise FileNotFoundError(ABSENT)
        self.events: list[dict[str, Any]] = []
        self._program = found
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._sent = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="browser", daemon=True)

    def __enter__(self) -> Self:
        """Start Chromium with a fresh profile."""
        self._folder = tempfile.TemporaryDirectory(prefix="bristle-browser-", ignore_cleanup_errors=True)
        words = [self._program, *FLAGS, f"--user-data-dir={self._folder.name}", "about:blank"]
        self._process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": self._folder.name}, start_new_session=True,
        )  # fmt: skip
        self._thread.start()
        try:
            self._do(self._connect())
        except BaseException:
            self.close()
            raise
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End Chromium."""
        self.close()

    def close(self) -> None:
        """End Chromium and forget its profile."""
        if not self._loop.is_closed():
            self._do(self._disconnect())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(timeout=10)
            self._loop.close()
        self._process.terminate()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._folder.cleanup()

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command of the protocol and return its answer."""
        return self._do(self._ask(method, parameters))

    def open(self, url: str) -> None:
        """Go to an address and wait until it is loaded."""
        loaded = sum(event["method"] == "Page.loadEventFired" for event in self.events)
        self.send("Page.navigate", url=url)
        self.wait(lambda: sum(event["method"] == "Page.loadEventFired" for event in self.events) > loaded, "loading")

    def value(self, script: str) -> Any:
        """Return what an expression is in the page; a promise is waited for."""
        answer = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(json.dumps(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def wait(self, until: Callable[[], T | None], what: str) -> T:
        """Wait until something is true."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if found := until():
                return found
            time.sleep(0.05)
        raise TimeoutError(f"waited {PATIENCE:.0f} s in vain for {what}")

    def wait_for(self, script: str) -> Any:
        """Wait until an expression is true in the page, and return its value."""
        return self.wait(lambda: self.value(script), script)

    def press(self, key: str) -> None:
        """Press a key: what has a letter types it."""
        text = {"Enter": "\r", " ": " "}.get(key, "")
        code = {"Enter": 13, " ": 32, "Tab": 9, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
        parameters = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": code.get(key, 0)}
        self.send("Input.dispatchKeyEvent", type="keyDown", text=text, **parameters)
        self.send("Input.dispatchKeyEvent", type="keyUp", **parameters)

    def click(self, script: str) -> None:
        """Click in the middle of the element that an expression gives."""
        x, y = self.value(
            f"(() => {{ const node = {script}; node.scrollIntoView({{block: 'center'}});"
            " const box = node.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def emulate(self, *, dark: bool, width: int = 1360, height: int = 1000, scale: float = 1.0) -> None:
        """Set the window's size and the colours that the reader prefers."""
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False
        )
        preferred = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", media="screen", features=[preferred])

    def picture(self, path: Path, *, whole: bool = True) -> None:
        """Write a picture of the page as PNG."""
        taken = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(taken["data"]))

    def requests(self) -> list[str]:
        """Return the addresses of all requests so far."""
        return [
            event["params"]["request"]["url"] for event in self.events if event["method"] == "Network.requestWillBeSent"
        ]

    def complaints(self) -> list[str]:
        """Return errors and warnings of the console, and exceptions, so far."""
        found = []
        for event in self.events:
            details = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                found.append(json.dumps(details["exceptionDetails"]))
            elif event["method"] == "Log.entryAdded" and details["entry"]["level"] in ("error", "warning"):
                found.append(details["entry"]["text"])
            elif event["method"] == "Runtime.consoleAPICalled" and details["type"] in ("error", "warning", "assert"):
                found.append(json.dumps(details["args"]))
        return found

    def begin_trace(self) -> None:
        """Begin to note every task of the page."""
        wanted = {"includedCategories": ["disabled-by-default-devtools.timeline"], "excludedCategories": ["*"]}
        self.send("Tracing.start", traceConfig=wanted, transferMode="ReportEvents")

    def end_trace(self) -> list[float]:
        """Return the seconds that each task on the page's main thread took of a processor, longest first.

        Not by the clock: on a busy machine that would measure the others.
        """
        self.send("Tracing.end")
        self.wait(lambda: any(event["method"] == "Tracing.tracingComplete" for event in self.events), "the trace")
        parts = [event["params"]["value"] for event in self.events if event["method"] == "Tracing.dataCollected"]
        found = [one for part in parts for one in part]
        main = {
            (one["pid"], one["tid"])
            for one in found
            if one["name"] == "thread_name" and one["args"].get("name") == "CrRendererMain"
        }
        tasks = [one for one in found if one["name"] == "RunTask" and (one["pid"], one["tid"]) in main]
        return sorted((one["tdur"] / 1e6 for one in tasks if "tdur" in one), reverse=True)

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=PATIENCE)

    async def _connect(self) -> None:
        active = Path(self._folder.name) / "DevToolsActivePort"
        deadline = self._loop.time() + PATIENCE
        while not (active.exists() and active.read_text().count("\n")):
            if self._process.poll() is not None or self._loop.time() > deadline:
                raise RuntimeError(f"{self._program} did not start (exit code {self._process.poll()})")
            await asyncio.sleep(0.05)
        port = active.read_text().splitlines()[0]
        self._session = ClientSession()
        async with self._session.get(f"http://127.0.0.1:{port}/json/list") as answer:
            tabs = await answer.json(content_type=None)
        url = next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page")
        self._socket = await self._session.ws_connect(url, max_msg_size=0)
        self._reader = self._loop.create_task(self._read(self._socket))

    async def _disconnect(self) -> None:
        if hasattr(self, "_reader"):
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)
            await self._socket.close()
        if hasattr(self, "_session"):
            await self._session.close()

    async def _read(self, socket: ClientWebSocketResponse) -> None:
        async for message in socket:
            if message.type is not WSMsgType.TEXT:
                continue
            told = json.loads(message.data)
            if "id" in told:
                waiting = self._answers.pop(told["id"])
                if not waiting.done():
                    waiting.set_result(told)
            else:
                self.events.append(told)

    async def _ask(self, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
        self._sent += 1
        waiting = self._answers[self._sent] = self._loop.create_future()
        await self._socket.send_json({"id": self._sent, "method": method, "params": parameters})
        answer = await waiting
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        found: dict[str, Any] = answer["result"]
        return found
