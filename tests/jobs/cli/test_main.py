"""The command line: errors are one line with a remedy, answers are JSON where asked, help is whole."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from cachecast_main import cachecast
from command_line import COMMANDS
from rich.text import Text
from typer.testing import CliRunner

from jobs.cli.layout import EXAMPLES
from jobs.cli.main import app


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["plan", "--cache", "nowhere", "--as-of", "2026-03-01"], "no cache is called 'nowhere'"),
        (["plan", "--cache", "x", "--as-of", "soon"], "not a time"),
        (["features"], "no table accesses at"),
        (["predict", "--as-of", "2026-03-01", "--day", "2026-03-01"], "give either --as-of or --day"),
        (["promote"], "cachecast evaluate"),
        (["promote", "--why"], "nothing was decided"),
        (["features", "--as-of", "2026-03-01T01:30:00Z"], "2026-03-01T01:00:00Z"),
        (["replay", "--from", "2026-03-01", "--to", "2026-03-02", "--capacity-fraction", "2"], "not shares"),
        (["replay", "--from", "2026-03-01", "--to", "2026-03-02", "--capacity", "much"], "not a size"),
        (["replay", "--from", "2026-03-01", "--to", "2026-03-02"], "no table accesses at"),
        (["scan", "--cache", "xc1", "--namespace", "/nowhere"], "cannot read namespace /nowhere: No such"),
        (["replay", "--from", "2026-03-02", "--to", "2026-03-01"], "--to 2026-03-01 is before --from"),
        (["report"], "no table to report on"),
        (["pull", "--source", "rumours", "--input", "x", "--day", "2026-03-01"], "rucio_traces"),
        (["workload", "--out", "w", "--start", "2026-03-01", "--scenario", "../x"], "there is no"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_mistake_is_one_line_with_its_remedy(tmp_path: Path, words: list[str], error: str) -> None:
    common = [] if words[0] == "workload" else ["--tables", str(tmp_path / "tables")]
    answer = cachecast(*words, *common, CACHECAST_PUSH__JOURNAL=str(tmp_path / "journal.db"))
    lines = [line for line in answer.stderr.splitlines() if line.strip()]
    assert answer.returncode == 1
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    assert error in lines[0]
    assert not answer.stdout


@pytest.mark.parametrize("command", ["evaluate", "replay", "curve", "report", "workload"])
@pytest.mark.parametrize("place", ["file/x.html", "/proc/nowhere/x.html", "folder.html", "pipe.html"])
def test_what_cannot_be_written_is_told_before_the_work(tmp_path: Path, command: str, place: str) -> None:
    """Below a file, where not even root may write, and what is a folder, a pipe or, for a folder, a file."""
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe.html")
    (tmp_path / "folder.html").mkdir()
    is_folder = command == "workload"
    out = tmp_path / ("file" if is_folder and place == "folder.html" else place)
    days = [] if command in ("report", "workload") else ["--from", "2026-03-01"]
    answer = cachecast(command, *days, "--out", out)
    assert answer.returncode == 1
    assert answer.stderr.startswith(f"error: cannot write {out}: ")
    assert len(answer.stderr.splitlines()) == 1


@pytest.mark.parametrize("words", [["report", "--trace"], ["prefill", "--cache", "x", "--files"]], ids=len)
def test_a_path_that_cannot_be_read_is_one_line(tmp_path: Path, words: list[str]) -> None:
    answer = cachecast(*words, tmp_path, CACHECAST_TABLES__ROOT=str(tmp_path / "tables"))
    assert answer.returncode == 1
    assert answer.stderr.startswith("error: ")
    assert str(tmp_path) in answer.stderr
    assert len(answer.stderr.splitlines()) == 1


def test_a_pull_of_rejected_rows_alone_fails(tmp_path: Path) -> None:
    (tmp_path / "traces").write_text("no trace\nneither\n")
    words = ("pull", "--source", "rucio_traces", "--input", tmp_path / "traces", "--day", "2026-03-01")
    answer = cachecast(*words, "--json", "--tables", tmp_path / "tables")
    assert json.loads(answer.stdout)["n_rows"] == 2
    assert answer.returncode == 1
    assert answer.stderr.startswith(f"error: every row of {tmp_path / 'traces'} was rejected")


@pytest.mark.parametrize("blocks", [0, 6])
def test_a_full_disk_is_told_in_one_line_with_its_remedy(tmp_path: Path, blocks: int) -> None:
    trace = {"eventType": "get_sm", "scope": "cms", "filename": "f", "uuid": "1", "filesize": 1}
    times = {"transferStart": 1772323200, "transferEnd": 1772323201, "traceTimeentryUnix": 1772323202}
    (tmp_path / "traces").write_text(json.dumps(trace | times | {"clientState": "DONE"}))
    words = ["pull", "--source", "rucio_traces", "--day", "2026-03-01", "--input", tmp_path / "traces"]
    cli = [sys.executable, "-c", "from jobs.cli.main import main; main()", "--tables", tmp_path / "tables"]
    full = ["sh", "-c", 'trap "" XFSZ; ulimit -f $0; exec "$@"', blocks, *cli[:3], *words, *cli[3:]]
    answer = subprocess.run(list(map(str, full)), capture_output=True, text=True, timeout=200, check=False)
    assert answer.returncode == 1
    assert answer.stderr.rstrip().splitlines()[-1].startswith("error: a disk is full; no table is half")
    assert "Traceback" not in answer.stderr


def test_the_doctor_tells_what_is_there_and_fails_for_what_is_not(tmp_path: Path) -> None:
    (tmp_path / "conf" / "caches").mkdir(parents=True)
    (tmp_path / "conf" / "caches" / "xc1.toml").write_text(
        'name = "xc1"\nkind = "xcache"\nurl = "root://127.0.0.1:9"\ncapacity = "1TB"\n'
    )
    answer = cachecast("doctor", "--json", "--conf", tmp_path / "conf", "--tables", tmp_path)
    checks = {check["part"]: check for check in json.loads(answer.stdout)}
    assert answer.returncode == 1
    assert checks["cache xc1"]["state"] == "bad"
    assert checks["java"]["state"] == "ok"
    assert checks["rucio"]["state"] == "off"
    assert cachecast("doctor", "--tables", tmp_path).returncode == 0


WORDS = "import sys; sys.argv = ['cachecast', *sys.argv[1:]]; from jobs.cli.main import main; main()"


def screen_of(monkeypatch: pytest.MonkeyPatch, *words: str) -> str:
    """What is printed in a terminal wide enough for one line per option."""
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", 1000)
    answer = CliRunner().invoke(app, words)
    assert answer.exit_code == 0
    return " ".join(answer.output.split())


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_the_help_is_whole_and_ends_with_an_example_that_the_command_takes(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its brackets, and at 80 characters with all its words."""
    screen = screen_of(monkeypatch, *command.split(), "-h")
    assert " ".join(COMMANDS[command].help.split("\n")[0].split()) in screen
    helps = [Text.from_markup(option.help).plain for option in COMMANDS[command].params]
    for option, plain in zip(COMMANDS[command].params, helps, strict=True):
        assert plain.count("[") == option.help.count("["), option.name
        assert " ".join(plain.split()) in screen, option.name
    example = EXAMPLES[command]
    assert screen.endswith(f"Example: cachecast {command} {example}")
    parser = COMMANDS[command].make_parser(typer.Context(COMMANDS[command]))
    values, others, _ = parser.parse_args(shlex.split(example))
    with_value = {name for name, value in values.items() if value not in (None, ())}
    assert not others
    assert {parameter.name for parameter in COMMANDS[command].params if parameter.required} <= with_value
    monkeypatch.undo()
    narrow = CliRunner().invoke(app, [*command.split(), "-h"], env={"COLUMNS": "80"}).output.split()
    assert {word for text in helps for word in text.split()} <= set(narrow)


@pytest.mark.parametrize(
    ("typed", "completed"), [("cachecast pus", {"push"}), ("cachecast rucio sync --d", {"--dry-run"})]
)
def test_a_shell_completes_commands_and_options(typed: str, completed: set[str]) -> None:
    env = {"_CACHECAST_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" "))}
    answer = subprocess.run(
        [sys.executable, "-c", WORDS], env=env, capture_output=True, text=True, timeout=60, check=True
    )
    assert set(answer.stdout.split()) == completed
