"""The house itself: room names are ours alone, every command has help and stands in the docs."""

import ast
import importlib.metadata
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import COMMANDS, options

from jobs.cli.main import COMMANDS as table
from jobs.cli.main import GROUPS

ROOT = Path(__file__).resolve().parents[1]
ROOMS = {"cachecast", "dags", "jobs", "models", "prefetch", "replay", "features", "conf"}


def test_no_installed_distribution_shares_a_rooms_name() -> None:
    owners = importlib.metadata.packages_distributions()
    strangers = {room: set(owners.get(room, [])) - {"cachecast"} for room in ROOMS}
    assert not any(strangers.values()), strangers


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_has_help_and_stands_in_the_docs(command: str) -> None:
    assert COMMANDS[command].help.strip().splitlines()[0].endswith(".")
    undocumented = [p.name for p in COMMANDS[command].params if p.name != "help" and not p.help]
    assert not undocumented
    pages = "".join(page.read_text() for page in (ROOT / "docs").glob("*.md"))
    assert f"cachecast {command}" in pages


def test_the_help_of_the_program_and_of_every_command_loads_no_job() -> None:
    code = (
        "import sys\nfrom jobs.cli.main import COMMANDS, app, load\n"
        "try:\n    app(['--help'])\nexcept SystemExit:\n    pass\n"
        "assert [load(name) for name in COMMANDS]\n"
        "heavy = {'pyspark', 'mlflow', 'numba', 'numpy', 'pyarrow', 'pydantic'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert answer.returncode == 0, answer.stderr
    for group, commands in GROUPS.items():
        assert group in answer.stdout
        assert commands
    for name in table:
        assert f" {name} " in answer.stdout


OF_THEIR_OWN = ("forecast", "collect", "init", "serve", "package", "files", "up", "down")


@pytest.mark.parametrize("command", [c for c in COMMANDS if c not in OF_THEIR_OWN])
def test_the_common_options_mean_the_same_everywhere(command: str) -> None:
    # Rucio's commands read caches and Rucio, no tables.
    common = {"--conf", "--json"} if command.startswith("rucio ") else {"--conf", "--json", "--tables"}
    assert common <= options(command)


PAGES = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]


def links(page: Path) -> list[tuple[Path, str]]:
    """The files or folders a page links to, each with the section or nothing."""
    targets = [text.split(")")[0] for text in page.read_text().split("](")[1:]]
    parts = [target.partition("#") for target in targets if "://" not in target]
    return [((page.parent / path).resolve() if path else page, section) for path, _, section in parts]


def sections(page: Path) -> set[str]:
    """The names of a page's headings in links, as GitHub makes them."""
    headings = [line.lstrip("#").strip() for line in page.read_text().splitlines() if line.startswith("#")]
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_the_docs_lead_somewhere(page: Path) -> None:
    assert not [path for path, _ in links(page) if not path.exists()]
    assert not [(path, section) for path, section in links(page) if section and section not in sections(path)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_of_the_docs_have_the_options_that_they_are_given(page: Path) -> None:
    for line in re.findall(r"cachecast ((?:\\\n|[^\n`])+)", page.read_text()):
        words = line.replace("\\\n", " ").split()
        command = next((" ".join(words[:n]) for n in (2, 1) if " ".join(words[:n]) in COMMANDS), None)
        given = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", line))
        assert words[0].startswith("-") or given <= (options(command) if command else set()), line


def test_every_page_is_reached_from_the_readme() -> None:
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        reached.add(page)
        for path, _ in links(page):
            pages = path.glob("*.md") if path.is_dir() else [path] if path.suffix == ".md" else []
            waiting += set(pages) - reached
    assert reached >= set(PAGES)


BENCHES = [path for path in sorted((ROOT / "bench").glob("*.py")) if "__main__" in path.read_text()]


@pytest.mark.parametrize("bench", BENCHES, ids=lambda path: path.stem)
def test_a_bench_names_its_environment_which_has_what_it_imports(bench: Path) -> None:
    module = ast.parse(bench.read_text())
    assert "`make verify`" in str(ast.get_docstring(module))
    named = [alias.name for node in ast.walk(module) if isinstance(node, ast.Import) for alias in node.names]
    named += [str(node.module) for node in ast.walk(module) if isinstance(node, ast.ImportFrom)]
    ours = {path.stem for folder in ("bench", "tests/support") for path in (ROOT / folder).rglob("*.py")}
    foreign = {name.split(".")[0] for name in named} - sys.stdlib_module_names - ROOMS - ours
    pins = (ROOT / "conf" / "constraints" / "py312.txt").read_text().lower().replace("-", "_").splitlines()
    pinned = {pin.split("==")[0].removeprefix("apache_") for pin in pins}
    assert {name.lower() for name in foreign} <= pinned


def test_the_benchmarks_page_runs_benches_that_are_there() -> None:
    page = subprocess.run(
        [sys.executable, "bench/page.py", "--list"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    listed = dict(re.findall(r"^([a-z-]+) .*: (bench/\S+\.py)", page.stdout, re.MULTILINE))
    assert {"leaderboard", "replay", "scoring"} <= listed.keys()
    assert [path for path in listed.values() if not (ROOT / path).is_file()] == []
    assert len(listed) == len(page.stdout.splitlines())


def test_the_table_on_top_of_the_benchmarks_page_has_the_figures_of_its_sections() -> None:
    page = runpy.run_path(str(ROOT / "bench" / "page.py"))
    text = (ROOT / "docs" / "benchmarks.md").read_text()
    table = page["headlines"](page["sections"](text))
    assert table in text
    assert "| a steward's start beside a million files, s | " in table
