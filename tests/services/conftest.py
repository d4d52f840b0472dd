"""A real browser for the pages, wrong clocks, a broker, versions of XRootD, a real cache with stewards."""

import json
import os
import select
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import stomp_broker
import xcache_server
import xrootd_versions
from daemons import needed
from steward_site import Site
from steward_site import running as with_stewards
from stomp_broker import KeepingBroker

from jobs.local_site.local.xrootd import Loopback
from prefetch.journal.journal import Journal

_FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking"),
    *("--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars", "--remote-debugging-pipe"),
)

_ERRORS = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded", "Network.loadingFailed")
_KEY_CODES = {
    **{"Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "Home": 36, "End": 35},
    **{"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40},
}
_PATIENCE_S = 120
_AXE = Path(str(resources.files("axe_core_python").joinpath("axe.min.js")))
_RUN_AXE = (
    # WCAG 2.2 asks no more that ids be unique where nothing refers to them, as in matplotlib's drawings.
    "axe.run({rules: {'duplicate-id': {enabled: false}}})"
    ".then(r => r.violations.map(v => [v.id, v.nodes.length, v.nodes[0].html.slice(0, 150)]))"
)
_REQUEST = "Network.requestWillBeSent"


class Browser:
    """One tab, over DevTools: JSON with a zero byte behind, on the browser's file descriptors 3 and 4."""

    def __init__(self, executable: str, profile: Path) -> None:
        to_read, to_write = os.pipe()
        from_read, from_write = os.pipe()
        log = os.open(profile.with_suffix(".log"), os.O_CREAT | os.O_WRONLY)
        # Numbers above 4 first: a pipe that is itself 3 or 4 must not be overwritten before it is copied.
        child = [os.dup(fd) for fd in (to_read, from_write)]
        while min(child) <= 4:
            child = [os.dup(fd) for fd in child]
        self._pid = os.posix_spawn(
            executable,
            [executable, *_FLAGS, f"--user-data-dir={profile}", "about:blank"],
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, child[0], 3),
                (os.POSIX_SPAWN_DUP2, child[1], 4),
                (os.POSIX_SPAWN_DUP2, log, 1),
                (os.POSIX_SPAWN_DUP2, log, 2),
            ],
            setpgroup=0,
        )
        for fd in (to_read, from_write, log, *child):
            os.close(fd)
        self._out, self._in, self._left = to_write, from_read, b""
        self._last, self._is_scriptless = 0, False
        self.events: list[dict[str, Any]] = []
        self._session: str | None = None
        self._scheme = ""
        (page,) = [t for t in self._call("Target.getTargets")["targetInfos"] if t["type"] == "page"]
        attached = self._call("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")

    def open(self, page: Path | str, *, width: int) -> None:
        """Load `page`, a file or a URL, at `width` pixels; what it tells and asks for is in `events`."""
        self._call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False
        )
        url = page if isinstance(page, str) else page.resolve().as_uri()
        self.loaded(lambda: self._call("Page.navigate", url=url))

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        answer = self._call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def faults(self, page: Path, *, width: int) -> list[str]:
        """What is wrong with `page` at `width` pixels: errors, requests elsewhere, empty plots, overflow."""
        self.open(page, width=width)
        plots = self.ask(
            "[...document.querySelectorAll('figure > .plot')].filter(f => !f.closest('[hidden]'))"
            ".map(f => [f.getAttribute('aria-label'), "
            "f.querySelector('svg')?.getBoundingClientRect(), "
            "f.querySelectorAll('svg :is(path, text)').length])"
            ".map(([name, box, n]) => [name, box ? box.width : 0, box ? box.height : 0, n])"
        )
        empty = [
            f"plot {name!r} is {wide:.0f} × {high:.0f} with {n} shapes"
            for name, wide, high, n in plots
            if min(wide, high) < 100 or n < 10
        ]
        faults = self.complaints(page.resolve().as_uri()) + empty + self.overflow("a screen")
        return faults + self.barriers() + self.faults_on_paper()

    def overflow(self, what: str) -> list[str]:
        """Whether the open page is wider than `what` it is shown on."""
        inside, room = self.ask(
            "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
        )
        return [f"is {inside} px wide on {what} of {room}"] if inside > room else []

    def faults_on_paper(self) -> list[str]:
        """What is wrong with the open page if it is printed: wider than the paper, or with controls."""
        self.on_paper(True)
        wider = self.overflow("paper")
        n_controls = self.ask(
            "[...document.querySelectorAll('.controls, button, select, input')]"
            ".filter(e => e.checkVisibility()).length"
        )
        self.on_paper(False)
        return wider + ([f"has {n_controls} controls on paper"] if n_controls else [])

    def barriers(self) -> list[str]:
        """What keeps people from using the open page, by axe-core: a line per rule that is broken.

        Nothing where the page's scripts are off: then axe cannot run either.
        """
        if self._is_scriptless:
            return []
        self.ask(f"{_AXE.read_text()}; 0")
        violations = self._call(
            "Runtime.evaluate", expression=_RUN_AXE, awaitPromise=True, returnByValue=True
        )["result"]["value"]
        return [f"axe {rule}: {n} times, first {first}" for rule, n, first in violations]

    def in_the_dark(self, on: bool) -> None:
        """Show pages to a reader who prefers dark ones, or no more."""
        self._scheme = "dark" if on else ""
        self.on_paper(False)

    def complaints(self, own: str) -> list[str]:
        """The errors of the open page, and its requests to URLs that do not start with `own`."""
        faults = [
            f"{e['method']}: {json.dumps(e['params'])[:300]}" for e in self.events if e["method"] in _ERRORS
        ]
        urls = [e["params"]["request"]["url"] for e in self.events if e["method"] == _REQUEST]
        return faults + [f"asks for {url}" for url in urls if not url.startswith((own, "data:"))]

    def loaded(self, act: Callable[[], object]) -> None:
        """Do what leads to another page, and wait until that is loaded."""
        self.events.clear()
        act()
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self._receive()

    def point_at(self, selector: str, n: int = 0) -> None:
        """Move the mouse to the middle of the n-th element that `selector` finds."""
        x, y = self.ask(
            f"(e => {{ e.scrollIntoView({{block: 'center'}}); const b = e.getBoundingClientRect();"
            f" return [b.x + b.width / 2, b.y + b.height / 2]; }})"
            f"(document.querySelectorAll({json.dumps(selector)})[{n}])"
        )
        self._call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def press(self, *keys: str) -> None:
        """Press keys one after the other, for example `Tab`, `Enter`, ` `, or a letter."""
        for key in keys:
            code = {" ": "Space"}.get(key, key)
            number = _KEY_CODES.get(key, 0)
            text = "\r" if key == "Enter" else key
            more = {"text": text} if len(text) == 1 else {}
            for kind in ("keyDown", "keyUp"):
                self._call(
                    "Input.dispatchKeyEvent",
                    **{"type": kind, "key": key, "code": code, "windowsVirtualKeyCode": number, **more},
                )

    def without_scripts(self, off: bool) -> None:
        """From the next page on, run no script of a page, or run them again."""
        self._call("Emulation.setScriptExecutionDisabled", value=off)
        self._is_scriptless = off

    def on_paper(self, on: bool) -> None:
        """Show pages as they are printed, or on a screen again."""
        scheme = {"name": "prefers-color-scheme", "value": self._scheme}
        self._call("Emulation.setEmulatedMedia", media="print" if on else "", features=[scheme])

    def close(self) -> None:
        """End the browser and all that it started."""
        os.killpg(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._out)
        os.close(self._in)

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        self._last += 1
        message: dict[str, Any] = {"id": self._last, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._last:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._left:
            ready, _, _ = select.select([self._in], [], [], _PATIENCE_S)
            assert ready, f"the browser has said nothing for {_PATIENCE_S} s"
            part = os.read(self._in, 1 << 20)
            assert part, "the browser has ended"
            self._left += part
        raw, _, self._left = self._left.partition(b"\0")
        message: dict[str, Any] = json.loads(raw)
        if "method" in message:
            self.events.append(message)
        return message


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    executable = shutil.which("chromium")
    if executable is None:
        pytest.fail("there is no chromium: install it with conf/deploy/system.sh browser")
    opened = Browser(executable, tmp_path_factory.mktemp("chromium") / "profile")
    yield opened
    opened.close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test of real servers runs on the newest version, and on the system's too if it says so."""
    if "xrootd" in metafunc.fixturenames:
        is_thin = metafunc.definition.get_closest_marker("every_version") is not None
        versions = xrootd_versions.tested() if is_thin else xrootd_versions.of_all_tests()
        metafunc.parametrize("xrootd", versions, indirect=True, scope="module")


@pytest.fixture(scope="module")
def xrootd(request: pytest.FixtureRequest) -> Iterator[str]:
    """The version of the XRootD servers that a test starts: each one that it runs on, in turn."""
    with xrootd_versions.in_use(request.param):
        yield request.param


@pytest.fixture(scope="module")
def servers(xrootd: str) -> Iterator[Site]:
    """A cache, its collector and its stewards, for the tests of a module."""
    yield from needed("a real XCache", with_stewards())


@pytest.fixture(scope="module")
def xcache(xrootd: str) -> Iterator[Loopback]:
    """A cache for the tests of a module."""
    for started, _ in needed("a real XCache", xcache_server.running()):
        yield started


@pytest.fixture
def running(xrootd: str) -> Iterator[tuple[Loopback, Path]]:
    """A cache of the test's own, and the capture of what it reports."""
    yield from needed("a real XCache", xcache_server.running())


@pytest.fixture
def site(servers: Site) -> Site:
    """The module's cache, emptied, without a steward."""
    servers.empty()
    return servers


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    opened = Journal(str(tmp_path / "journal.db"))
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def bus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeepingBroker]:
    """A message broker of the run, for tests that do not kill it and acknowledge all that they publish."""
    yield from needed("a real message broker", stomp_broker.running(tmp_path_factory.mktemp("bus")))


@pytest.fixture
def clock_shift(folder_of_all: Path) -> Path:
    """A library that shifts the clock of daemons, by CLOCK_SHIFT_S."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.fail("there is no C compiler to shift a daemon's clock with; install gcc")
    library = folder_of_all / "shifted_clock.so"
    source = Path(__file__).parents[1] / "support/servers/shifted_clock.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library
