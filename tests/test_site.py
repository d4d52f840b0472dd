"""The documentation site: it is built with strict links, and the tutorial shows what its commands print."""

import json
import math
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.local_site.local.process import free_ports

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
BOXES = re.compile("[│┃┏└╭╰]")
NUMBER = re.compile(r"\d+(?:[ .,]\d+)*(?: [kMGTP]?B\b)?")
"""Figures may differ a little between versions of libraries; words may not."""
NEAR, NEAR_LEARNED = 0.03, 0.1
"""By what share a figure may differ from the page's, and one of an order that is learned."""
LEARNED = re.compile(r"cachecast worth-it")
OF_A_MODEL = re.compile(r"cachecast (cycle|train|predict|evaluate|promote|plan|push|outcomes|placement)\b")
"""Commands whose figures are those of a model; the tests train a smaller one than the pages."""
FACTORS = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
SMALLER = {"CACHECAST_TRAINING__TREES": "20", "CACHECAST_TRAINING__SPAN": "7d"}
"""A training that takes seconds."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built with strict links."""
    out = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(out)]
    env = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return out


def test_every_page_can_be_searched_and_the_reference_is_made_from_the_code(site: Path) -> None:
    entries = json.loads((site / "search" / "search_index.json").read_text())["docs"]
    pages = {entry["location"].partition("#")[0] for entry in entries}
    sources = {path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")}
    names = {str(path.with_suffix(".html")).replace("README.html", "index.html") for path in sources}
    assert names <= pages | {"index.html"}
    commands = (site / "reference" / "commands.html").read_text()
    for words in ("worth-it", "--price-steward", "rucio sync", "--dry-run"):
        assert words in commands
    assert "horizons" in (site / "reference" / "settings.html").read_text()
    assert "byte_gap_closed" in (site / "reference" / "tables.html").read_text()
    assert "cachecast_steward_saved_bytes" in (site / "reference" / "metrics.html").read_text()
    assert 'href="#steward-clock"' in (site / "troubleshoot.html").read_text()


def test_the_site_asks_no_other_host(site: Path) -> None:
    for name in ("index.html", "tutorial.html", "architecture.html"):
        page = (site / name).read_text()
        assert "flowchart" not in page  # drawn by a script of another host
        assert not re.findall(r'(?:src|<link[^>]*href)="https?://(?!cachecast)[^"]*"', page)


def commands(page: str) -> list[tuple[str, list[str]]]:
    """The commands of a page in order, each with the lines that it is to print."""
    steps: list[tuple[str, list[str]]] = []
    for block in BLOCK.findall((ROOT / "docs" / f"{page}.md").read_text()):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            lines = part.rstrip("\n").split("\n")
            until = lines.index("END") + 1 if "<< END" in lines[0] else _end(lines)
            steps.append(("\n".join(lines[:until]), lines[until:]))
    return steps


def _end(lines: list[str]) -> int:
    """The number of lines of a command that may go on after a backslash."""
    return next(n for n, line in enumerate(lines, 1) if not line.endswith("\\"))


def shape(line: str) -> str:
    """A line without its figures and spaces."""
    return re.sub(r"\s+", " ", NUMBER.sub("#", line)).strip()


def is_like(text: str, printed: str) -> bool:
    """Whether a printed line has the shape of one that is shown, where `…` stands for anything."""
    pattern = ".*".join(map(re.escape, shape(text).split("…")))
    return re.fullmatch(pattern, shape(printed)) is not None


def figure(text: str) -> float:
    """`6.81 TB` in bytes, `20 087` as a number; of what is no number, such as an address, NaN."""
    written = re.fullmatch(r"(.*?)(?: ([kMGTP]?)B)?", text, re.DOTALL)
    assert written is not None
    number, factor = written.groups()
    try:
        return float(number.replace(" ", "")) * FACTORS.get(factor, 1)
    except ValueError:
        return math.nan


def far(text: str, printed: str, *, near: float) -> list[tuple[str, str]]:
    """The figures of a line that is shown which differ from those printed in a line like it."""
    parts = [re.split(r"\s+", NUMBER.sub("\0", part)) for part in text.strip().split("…")]
    pattern = ".*".join(r"\s+".join(map(re.escape, words)) for words in parts)
    same = re.fullmatch(pattern.replace("\0", f"({NUMBER.pattern})"), printed.strip())
    assert same is not None, (text, printed)
    pairs = zip(NUMBER.findall(text), same.groups(), strict=True)
    return [(a, b) for a, b in pairs if abs(figure(a) - figure(b)) > near * abs(figure(a))]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short name, as a reader's, which tables have room for."""
    with tempfile.TemporaryDirectory(prefix="t") as name:
        yield Path(name)


def test_the_tutorial_prints_what_it_shows(folder: Path) -> None:
    """With a smaller training."""
    steps = commands("tutorial")
    assert len(steps) >= 12
    follow(steps, folder, {"COLUMNS": "80"} | SMALLER)


@pytest.mark.verify
def test_pull_train_and_evaluate_print_what_their_pages_show(folder: Path) -> None:
    """One after the other, as the pages name each other, with a smaller training."""
    steps = [step for page in ("pull", "train", "evaluate") for step in commands(page)]
    assert len(steps) >= 12
    follow(steps, folder, {"COLUMNS": "100"} | SMALLER)


@pytest.mark.verify
def test_push_and_placement_print_what_their_pages_show(folder: Path) -> None:
    """With a smaller training, and the service at a port of its own."""
    port = str(free_ports(1)[0])
    steps = [
        (command.replace("8400", port), expected)
        for page in ("push", "placement")
        for command, expected in commands(page)
    ]
    assert len(steps) >= 20
    follow(steps, folder, {"COLUMNS": "100", "CACHECAST_SERVE__PORT": port} | SMALLER)


def _checked(command: str, expected: list[str]) -> str:
    """The command, which is to fail if it is to print an error."""
    fails = any(line.startswith("error:") for line in expected)
    return f"if {command}; then exit 9; fi" if fails else command


def follow(steps: list[tuple[str, list[str]]], folder: Path, env: dict[str, str]) -> None:
    """Run the commands in one shell; each expected line comes after the one before it, with its figures."""
    env = {"PATH": f"{BIN}:{os.environ['PATH']}", "HOME": str(folder)} | env
    lines = [f"{_checked(*step)}\necho '=== end of {n}'" for n, step in enumerate(steps)]
    script = "\n".join(["trap 'kill $(jobs -p) 2> /dev/null || true' EXIT", *lines])
    done = subprocess.run(
        ["bash", "-e"], input=script, cwd=folder, env=env, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    rest, wrong = done.stdout, []
    assert "Traceback" not in rest
    for n, (command, expected) in enumerate(steps):
        screen, _, rest = rest.partition(f"=== end of {n}\n")
        printed = screen.splitlines()
        assert not [line for line in printed if BOXES.search(line) and len(line) > int(env["COLUMNS"])], (
            command
        )
        near = NEAR_LEARNED if LEARNED.search(command) else NEAR
        if OF_A_MODEL.search(command):
            near = math.inf
        for line in (line for line in expected if line != "…"):
            alike = [at for at, printed_line in enumerate(printed) if is_like(line, printed_line)]
            assert alike, (command, line, screen)
            differing = {at: far(line, printed[at], near=near) for at in alike}
            at = next((at for at in alike if not differing[at]), alike[0])
            wrong += [(command, line, differing[at])] if differing[at] else []
            printed = printed[at + 1 :]
    assert wrong == []
