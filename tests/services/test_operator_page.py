"""The operator's page of `cachecast serve` in a real browser: nothing fails, keys suffice."""

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from cachecast_main import cachecast
from operator_site import GB, environment, lfn, planted
from placement_server import PlacementServer, serving
from waiting import eventually

pytestmark = pytest.mark.service

CACHES = {"xc1": ("EDGE", 100 * GB), "xc2": ("EDGE", 100 * GB)}
WIDTHS = (360, 1280)
FOCUSED = "document.activeElement.outerHTML.slice(0, 300)"
ALONE = (
    "[...document.querySelectorAll('td, dd')].map(cell => cell.innerText.trim())"
    ".filter(text => /^[-–]?[0-9][0-9\\s.,]*$/.test(text))"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlacementServer]:
    folder = tmp_path_factory.mktemp("operator")
    planted(folder, now_s=int(time.time()))
    with serving(folder / "placement.db", caches=CACHES, env=environment(folder)) as started:
        started.beat("xc1")
        # The process of the first page imports what it needs, behind all that this machine does.
        assert eventually(lambda: started.get("/operator").status_code == 200, within_s=240)
        yield started


def pages(server: PlacementServer) -> list[str]:
    plan = f"{server.url}/operator/caches/xc1"
    return [
        f"{server.url}/operator",
        plan,
        f"{plan}?action=pin&after=10",
        f"{plan}?file={quote(lfn(91))}",
        f"{plan}?file={quote(lfn(100))}",
        f"{plan}?file=%3Cscript%3Ealert(1)%3C/script%3E",
        f"{server.url}/operator/caches/xc2",
    ]


@pytest.mark.parametrize("width", WIDTHS)
def test_every_page_opens_without_a_fault(browser: Any, server: PlacementServer, width: int) -> None:
    for page in pages(server):
        browser.open(page, width=width)
        assert browser.complaints(server.url) + browser.barriers() + browser.faults_on_paper() == [], page
        assert browser.overflow("a screen") == [], page
        assert not [event for event in browser.events if event["method"] == "Page.javascriptDialogOpening"]
        assert browser.ask("document.querySelectorAll('script, img, iframe, [style], [onerror]').length") == 0
        assert browser.ask("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert browser.ask(ALONE) == [], page
        text = browser.ask("document.body.innerText")
        for useless in ("None", "nan", "undefined", "{{", "{%"):
            assert not re.search(rf"\b{re.escape(useless)}\b", text), (page, useless)


def test_the_page_as_a_file_opens_without_a_service(browser: Any, tmp_path: Path) -> None:
    planted(tmp_path, now_s=int(time.time()))
    page = tmp_path / "region.html"
    words = ["status", "--conf", str(tmp_path / "conf"), "--html", str(page)]
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)} | environment(tmp_path)
    answer = cachecast(*words, **env)
    assert answer.returncode == 1 and "drift" in answer.stdout, answer.stderr
    browser.open(page, width=360)
    assert browser.faults(page, width=360) == []
    browser.in_the_dark(True)
    assert browser.barriers() == []
    assert browser.ask("getComputedStyle(document.body).backgroundColor") == "rgb(22, 25, 29)"
    browser.in_the_dark(False)
    assert browser.overflow("a screen") == []
    assert "follows the order s3fifo" in browser.ask("document.body.innerText")
    assert browser.ask("getComputedStyle(document.querySelector('.alarms')).listStyleType") == "none"


def test_keys_suffice(browser: Any, server: PlacementServer) -> None:
    browser.open(f"{server.url}/operator", width=1280)
    focused: list[str] = []
    for _ in range(40):
        browser.press("Tab")
        focused.append(browser.ask(FOCUSED))
        if focused[-1].startswith("<summary"):
            break
    assert 'class="skip"' in focused[0] and focused[-1].startswith("<summary"), focused
    assert browser.ask("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    assert not browser.ask("document.querySelector('details').open")
    browser.press("Enter")
    assert browser.ask("document.querySelector('details').open")
    browser.open(f"{server.url}/operator/caches/xc1", width=1280)
    while not browser.ask(FOCUSED).startswith("<input"):
        browser.press("Tab")
    for letter in lfn(91):
        browser.press(letter)
    browser.loaded(lambda: browser.press("Enter"))
    assert browser.complaints(server.url) == []
    assert browser.ask("document.querySelector('.answer strong').innerText") == "pin"
    assert browser.ask("new URLSearchParams(location.search).get('file')") == lfn(91)
