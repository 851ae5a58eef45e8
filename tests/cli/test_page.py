"""Pages: escaped, self-contained, replaced only by others of their kind, and right in a browser."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import Inside, app
from tests.testing import crash_scenarios
from trioagent.page import document, escaped, save_page
from trioagent.testing import crash_everywhere


def test_what_others_said_is_text_and_what_hides_is_shown() -> None:
    assert escaped("<script>\x1b[2J\u202e&\ud800") == (
        "&lt;script&gt;\\u001b[2J\\u202e&amp;\\ud800"
    )


def test_a_page_is_never_written_over_something_else(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("mine")
    with pytest.raises(FileExistsError, match="no page of trioagent"):
        save_page(tmp_path / "kept", document("a", []))
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    save_page(tmp_path / "page", document("a", []))
    save_page(tmp_path / "page", document("b", []))
    assert "<title>b</title>" in (tmp_path / "page").read_text()


# -- in a browser ---------------------------------------------------------------------------------


class Browser:
    """A headless Chromium, spoken to by WebDriver over loopback."""

    def __init__(self, url: str) -> None:
        self._url = url

    def call(self, path: str, body: dict[str, Any] | None = None, method: str = "POST") -> Any:
        request = urllib.request.Request(
            self._url + path,
            None if body is None else json.dumps(body).encode(),
            {"content-type": "application/json"},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.load(response)["value"]

    def script(self, text: str) -> Any:
        return self.call("/execute/sync", {"script": text, "args": []})


FLAGS = (
    "headless no-sandbox disable-gpu disable-quic no-first-run disable-background-networking "
    "disable-component-update disable-sync disable-dev-shm-usage"
)


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    driver, chromium = shutil.which("chromedriver"), shutil.which("chromium")
    if driver is None or chromium is None:
        pytest.skip("there is no chromium and chromedriver here")
    process = subprocess.Popen([driver, "--port=0"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        told = next(line for line in process.stdout if "started successfully on port" in line)
        port = int(told.rsplit(" ", 1)[1].strip(" .\n"))
        arguments = [f"--{flag}" for flag in FLAGS.split()]
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": {
                "binary": chromium,
                "args": [*arguments, f"--user-data-dir={tmp_path / 'profile'}"],
            },
            "goog:loggingPrefs": {"browser": "ALL"},
        }
        root = Browser(f"http://127.0.0.1:{port}/session")
        session = root.call("", {"capabilities": {"alwaysMatch": wanted}})
        open_browser = Browser(f"http://127.0.0.1:{port}/session/{session['sessionId']}")
        yield open_browser
        open_browser.call("", method="DELETE")
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_pages_are_readable_at_every_width_and_leave_no_error_in_the_console(
    browser: Browser, inside: Inside, tmp_path: Path
) -> None:
    assert inside("run", "Go.", "--app", app("hostile"), "--run-id", "h").code == 0
    assert inside("run", "Go.", "--app", app("mailer"), "--run-id", "waits").code == 4
    for run_id in ("h", "waits"):
        assert inside("show", run_id, "--html", f"{run_id}.html").code == 0
    crash_everywhere(crash_scenarios.lying).save(tmp_path / "crashes.html")
    for name in ("h", "waits", "crashes"):
        browser.call("/url", {"url": (tmp_path / f"{name}.html").as_uri()})
        for width in (1280, 400):
            # The window is wider than what it shows by no fixed number, so the view itself is set.
            metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
            override = {"cmd": "Emulation.setDeviceMetricsOverride", "params": metrics}
            browser.call("/goog/cdp/execute", override)
            assert browser.script("return innerWidth") == width
            assert browser.script("return document.documentElement.scrollWidth") <= width
            smallest = browser.script(
                "return Math.min(...[...document.querySelectorAll('body *')].filter("
                "e => e.innerText).map(e => parseFloat(getComputedStyle(e).fontSize)))"
            )
            assert smallest >= 12
        assert browser.script("return document.querySelectorAll('.row').length") > 0
        assert browser.script("return document.scripts.length") == 0
        assert browser.call("/se/log", {"type": "browser"}) == []
