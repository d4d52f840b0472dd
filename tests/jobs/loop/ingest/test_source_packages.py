"""Sources of other packages: found by their entry point, read by both engines, and blamed by name."""

import datetime as dt
import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from matrix_records import json_lines
from pulls import LOCAL, pulled

from features.common.errors import ConfigError
from features.schema import ACCESSES
from jobs.ground.settings.our_sources import GROUP
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables
from jobs.loop.ingest import sources
from jobs.loop.ingest.pull_input import Engine

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs" / "source.md").read_text()
BLOCKS = re.findall(r"```(toml|python|json)\n(.*?)```", PAGE, re.DOTALL)
SHOWN = dict(reversed(BLOCKS))
"""The first block of each language."""
LINE = next(before for (_, before), (language, _) in itertools.pairwise(BLOCKS) if language == "python")
"""A line of the page's records, above the code that reads it."""
RECORDS = [
    {"time": 1772323200.5, "path": "/store/data/a.root", "bytes": 7, "host": "xc1"},
    {"time": 1772323201, "path": "/store/data/b.root", "bytes": "9", "host": "xc2"},
    {"time": "soon", "path": "/store/data/b.root", "bytes": 1, "host": "xc2"},
    {"path": "/store/data/b.root", "bytes": 1, "host": "xc2"},
    {"time": 1772323201, "path": "/store/data/b.root", "bytes": -1, "host": "xc2"},
    {"time": 1772323201, "path": "/store/data/b.root", "bytes": "few", "host": "xc2"},
    json.loads(LINE),
]
REFUSED = {"missing field": 1, "negative size": 1, "unparsable number": 1, "unparsable time": 1}

IMPORT = "from jobs.loop.ingest.sources import Source\n"

Install = Callable[..., None]


@pytest.fixture
def records(tmp_path: Path) -> str:
    (tmp_path / "records.jsonl").write_text(json_lines(RECORDS))
    return str(tmp_path / "records.jsonl")


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Puts a package with one module and one source where this process finds it, and no other does."""
    modules = []
    sources.load_source.cache_clear()

    def put(code: str, *, name: str = "myexp_log", package: str = "myexp", attribute: str = "SOURCE") -> None:
        folder = tmp_path / f"site-{package}"
        dist_info = folder / f"{package}-1.0.dist-info"
        dist_info.mkdir(parents=True)
        (folder / f"of_{package}.py").write_text(code)
        (dist_info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (dist_info / "entry_points.txt").write_text(f"[{GROUP}]\n{name} = of_{package}:{attribute}\n")
        monkeypatch.syspath_prepend(folder)
        modules.append(f"of_{package}")

    yield put
    sources.load_source.cache_clear()
    for module in modules:
        sys.modules.pop(module, None)


def rows(tables: Tables) -> list[dict[str, Any]]:
    return sorted(tables.read_arrow(ACCESSES).to_pylist(), key=lambda row: str(row["name"]))


def test_the_package_of_the_page_is_installed_and_pulled_with(tmp_path: Path, records: str) -> None:
    assert len([line for line in SHOWN["python"].splitlines() if line.strip()]) <= 20
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "pyproject.toml").write_text(SHOWN["toml"])
    (tmp_path / "package" / "myexp_cachecast.py").write_text(SHOWN["python"])
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
    subprocess.run([*install, tmp_path / "site", tmp_path / "package"], check=True, timeout=180)
    words = ["--source", "myexp_log", "--input", records, "--day", "2026-03-05", "--json"]
    answer = subprocess.run(
        [sys.executable, "-m", "jobs", "pull", *words, "--tables", str(tmp_path / "tables")],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ
        | {"PYTHONPATH": f"{tmp_path / 'site'}:{ROOT}", "CACHECAST_SOURCES__DEMAND": '{"*" = "myexp_log"}'},
        check=False,
        timeout=120,
    )
    assert answer.returncode == 0, answer.stderr
    summary = json.loads(answer.stdout)
    assert (summary["n_new"], summary["n_rejected"], summary["n_unsized"]) == (3, REFUSED, 3)
    first, second, third = rows(Tables(str(tmp_path / "tables")))
    assert (first["name"], first["cache"], first["source"]) == ("/store/data/a.root", "xc1", "myexp_log")
    assert first["accessed_at"] == dt.datetime(2026, 3, 1, 0, 0, 0, 500_000, dt.UTC)
    assert (first["read_bytes"], second["read_bytes"], third["read_bytes"]) == (7, 9, 5)
    assert third["accessed_at"] == dt.datetime(2026, 3, 1, 0, 0, 2, 500_000, dt.UTC)
    for check in (["check"], ["format", "--check"]):
        lint = [sys.executable, "-m", "ruff", *check, "--isolated", str(tmp_path / "package")]
        assert subprocess.run(lint, check=False, capture_output=True).returncode == 0


def test_lines_of_plain_text_are_read_as_the_page_says(
    install: Install, tables: Tables, tmp_path: Path
) -> None:
    _, plain = (code for language, code in BLOCKS if language == "python")
    of_json = re.search(r"    fields = .*\n", SHOWN["python"])
    line = re.search(r"Of plain text, here `(.*?)`", PAGE)
    assert of_json is not None and line is not None
    install(SHOWN["python"].replace(of_json[0], plain))
    (tmp_path / "records.txt").write_text(f"{line[1]}\n{line[1].replace(' 5 ', ' few ')}\nsoon /store/a 1\n")
    refused = pulled(tables, "myexp_log", tmp_path / "records.txt").n_rejected
    assert refused == {"unparsable number": 1, "unparsable time": 1}
    (read,) = rows(tables)
    assert (read["name"], read["cache"], read["read_bytes"]) == ("/store/data/c.root", "xc1", 5)
    assert read["accessed_at"] == dt.datetime(2026, 3, 1, 0, 0, 2, 500_000, dt.UTC)


def test_workers_of_spark_need_not_have_the_package(
    install: Install, spark_engine: Engine, tmp_path: Path, records: str
) -> None:
    """Code of the package runs there too: it is sent."""
    own = "\nimport dataclasses\n\ndef same(batch):\n    return batch\n\n"
    install(
        f"{SHOWN['python']}{own}"
        "SOURCE = Source(lambda site: dataclasses.replace(query(site), prepare=same))\n"
    )
    contents = []
    for engine in (LOCAL, spark_engine):
        tables = Tables(str(tmp_path / engine.name))
        assert pulled(tables, "myexp_log", records, engine=engine).n_rejected == REFUSED
        contents.append(rows(tables))
    assert contents[0] == contents[1]
    assert len(contents[0]) == 3


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (
            "import no_such_module\n",
            "cannot be loaded: ModuleNotFoundError: No module named 'no_such_module'",
        ),
        ("def f(:\n", "cannot be loaded: SyntaxError"),
        ("x = 1\n", "cannot be loaded: AttributeError"),
        ("raise SystemExit(3)\n", "cannot be loaded: SystemExit"),
        ("class Odd(BaseException): pass\nraise Odd('a\\nb')\n", "cannot be loaded: Odd: a; "),
        (
            f"{IMPORT}def query(site):\n    raise OSError('no')\nSOURCE = Source(query)\n",
            "failed: OSError: no",
        ),
        (f"{IMPORT}SOURCE = Source()\n", "has 0 of query, decode and read, and needs one"),
        (f"{SHOWN['python']}SOURCE = Source(query, decode=print)\n", "has 2 of query, decode and read"),
        (f"{SHOWN['python']}SOURCE = Source(query, table='x')\n", "has no Table as its table but a str"),
        ("SOURCE = 3\n", "is no Source but of type int"),
        (f"{IMPORT}SOURCE = Source(lambda site: 1 / 0)\n", "failed: ZeroDivisionError: division by zero"),
        (
            f"{IMPORT}def decode(space, places, **others): pass\nSOURCE = Source(decode=decode)\n",
            "failed: TypeError: decode returned None, not the number of records that are missing",
        ),
        (
            f"{SHOWN['python'].replace('read_bytes', 'raed_bytes')}",
            "failed: ValueError: the table accesses has no column 'raed_bytes'",
        ),
        (f"{SHOWN['python'].replace('n_reads', 'n_read')}", "failed: "),
        (f"{SHOWN['python'].replace('bytes < 0', 'bites < 0')}", "failed: "),
    ],
)
def test_a_package_that_fails_is_named_in_one_line(
    install: Install, tables: Tables, records: str, code: str, words: str
) -> None:
    install(code)
    with pytest.raises(ConfigError) as error:
        pulled(tables, "myexp_log", records)
    assert f"source: 'myexp_log' of the package myexp {words}" in str(error.value)
    assert str(error.value).endswith("; correct or uninstall it") and "\n" not in str(error.value)
    assert not tables.exists(ACCESSES)


def test_a_package_with_broken_entry_points_is_an_error(install: Install, tmp_path: Path) -> None:
    install(SHOWN["python"])
    (tmp_path / "site-myexp" / "myexp-1.0.dist-info" / "entry_points.txt").write_text(
        f"[{GROUP}]\nno_value\n"
    )
    with pytest.raises(ConfigError, match="entry points of an installed package cannot be read"):
        sources.load_source("myexp_log")


def test_of_two_packages_with_one_name_neither_is_guessed(install: Install) -> None:
    install(SHOWN["python"])
    install(SHOWN["python"], package="other")
    with pytest.raises(ConfigError, match="is brought by 2 packages"):
        sources.load_source("myexp_log")


def test_settings_know_the_sources_of_packages_and_list_them(install: Install, tmp_path: Path) -> None:
    install(SHOWN["python"])
    site = tmp_path / "site.toml"
    site.write_text('[sources]\ndemand = { "*" = "myexp_log" }\n[airflow.pull]\nmyexp_log = "/x"\n')
    assert Settings.load(site).sources.demand == {"*": "myexp_log"}
    site.write_text('[sources]\ndemand = { "*" = "myexp" }\n')
    with pytest.raises(ConfigError, match=r"no source 'myexp'; there are .*myexp_log.*osdf_log"):
        Settings.load(site)
