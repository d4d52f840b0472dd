"""Processes of a deployment: found again and ended, all of them and nobody else's."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import http_answers
import pytest

from features.common.errors import InputError, ServiceError
from jobs.ground.settings.tree import Settings
from jobs.local_site.local import daemon, site
from jobs.local_site.local.daemon import Daemon
from jobs.local_site.local.process import Service, Services, running_processes
from jobs.local_site.local.services import down, not_by_proxy
from jobs.operator.operate import asking

FAMILY = """
import os, subprocess, sys, time
child = [sys.executable, "-c", "import time; time.sleep(600)"]
one = subprocess.Popen(child, start_new_session=True)
two = subprocess.Popen(child, start_new_session=True, env={})
open(sys.argv[1], "w").write(f"{one.pid} {two.pid}")
time.sleep(600)
"""


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[Services]:
    started = Services(tmp_path / "run")
    yield started
    started.stop()


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """A process that no deployment has started."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait()


def service(tmp_path: Path, code: str = FAMILY, name: str = "family") -> Service:
    pids = tmp_path / name
    is_there = lambda: pids.exists() and pids.read_text() != ""  # noqa: E731
    return Service(name, [sys.executable, "-c", code, str(pids)], "nowhere", is_there, within_s=60)


def test_a_family_is_ended_whole_also_those_with_sessions_and_environments_of_their_own(
    tmp_path: Path, keeper: Services, stranger: subprocess.Popen[bytes]
) -> None:
    parent = int(keeper.start(service(tmp_path)).pid)
    family = {parent, *map(int, (tmp_path / "family").read_text().split())}
    assert family <= running_processes().keys()
    assert keeper.stop() == sorted(family)
    assert family.isdisjoint(running_processes())
    assert stranger.poll() is None
    assert keeper.stop() == []


def test_what_a_dead_service_left_behind_is_ended_by_its_mark(tmp_path: Path, keeper: Services) -> None:
    parent = int(keeper.start(service(tmp_path)).pid)
    marked, stranger = map(int, (tmp_path / "family").read_text().split())
    os.kill(parent, 9)
    assert marked in keeper.stop()
    assert marked not in running_processes()
    os.kill(stranger, 9)  # with neither a parent nor a mark


def test_a_second_start_leaves_a_healthy_service_alone_and_replaces_a_sick_one(
    tmp_path: Path, keeper: Services
) -> None:
    first = keeper.start(service(tmp_path))
    assert first.state == "started"
    again = keeper.start(service(tmp_path))
    assert (again.state, again.pid) == ("running", first.pid)
    (tmp_path / "family").write_text("")
    replaced = keeper.start(service(tmp_path))
    assert replaced.state == "started"
    assert replaced.pid != first.pid
    assert int(first.pid) not in running_processes()


def test_a_recycled_pid_is_not_ours(
    tmp_path: Path, keeper: Services, stranger: subprocess.Popen[bytes]
) -> None:
    (tmp_path / "run").mkdir()
    begun = running_processes()[stranger.pid].begun
    (tmp_path / "run" / "family.pid").write_text(f"{stranger.pid} {begun - 1}\n")
    assert keeper.stop() == []
    assert stranger.poll() is None


def test_a_process_whose_name_is_no_text_is_seen(tmp_path: Path, keeper: Services) -> None:
    code = "import pathlib, sys\npathlib.Path('/proc/self/comm').write_bytes(b'\\xff) R')\n"
    code += "pathlib.Path(sys.argv[1]).write_text('named')\nimport time; time.sleep(600)"
    assert int(keeper.start(service(tmp_path, code, "odd")).pid) in running_processes()


def test_a_service_that_ends_at_once_is_told_with_its_log(tmp_path: Path, keeper: Services) -> None:
    with pytest.raises(ServiceError, match="no such luck"):
        keeper.start(service(tmp_path, "raise SystemExit('no such luck')", "unlucky"))


def test_a_site_keeps_ports_secrets_and_edited_settings(tmp_path: Path) -> None:
    first = site.opened(tmp_path / "out", tables=None, xrootd=False)
    base = first.conf / "base.toml"
    base.write_text(base.read_text() + "\n# edited\n")
    again = site.opened(tmp_path / "out", tables=None, xrootd=False)
    assert again.ports == first.ports
    assert len(set(first.ports.values())) == len(first.ports)
    assert again.secret("salt") == first.secret("salt")
    assert base.read_text().endswith("# edited\n")
    private = [base, tmp_path / "out" / "conf" / "secrets.toml", *(tmp_path / "out" / "secrets").iterdir()]
    assert all(path.stat().st_mode & 0o077 == 0 for path in private)


@pytest.mark.parametrize("name", ["a b", 'a"b', "a'b", "a\nb", "a#b", "a$b", "a:b", "a%20b"], ids=ascii)
def test_a_folder_that_servers_cannot_name_is_refused_before_it_is_made(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="servers take no folder"):
        site.opened(tmp_path / name, tables=None, xrootd=True)
    assert not list(tmp_path.iterdir())


def test_this_machine_is_asked_past_a_site_s_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    assert not_by_proxy() == "*"
    monkeypatch.setenv("no_proxy", "example.org,localhost")
    assert not_by_proxy() == "example.org,localhost,127.0.0.1"
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", not_by_proxy())
    with http_answers.answering(http_answers.Answers) as url:
        assert asking.fetched(url) == "answers 501"


def test_tables_may_lie_where_servers_have_none(tmp_path: Path) -> None:
    odd = f'{tmp_path}/a "b\\'
    made = site.opened(tmp_path / "out", tables=odd, xrootd=False)
    assert Settings.load(made.conf, env={}).tables.root == odd


def test_folders_of_others_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    with pytest.raises(InputError, match="not empty"):
        site.opened(tmp_path, tables=None, xrootd=False)
    with pytest.raises(InputError, match="holds no deployment"):
        down(tmp_path)


ENDS = """
import os, signal, sys
with open(sys.argv[1], "a") as starts:
    starts.write("x")
n_crashes = int(sys.argv[2])
if os.path.getsize(sys.argv[1]) <= n_crashes:
    os.kill(os.getpid(), signal.SIGKILL)
"""


class Ending(Daemon):
    """It ends as it starts, the first `n_crashes` times by a signal."""

    def __init__(self, folder: Path, n_crashes: int) -> None:
        super().__init__("role", folder, 1, "")
        self.starts, self._n_crashes = folder / "starts", n_crashes

    def words(self, *, with_parent: bool) -> list[str]:
        return [sys.executable, "-c", ENDS, str(self.starts), str(self._n_crashes)]


@pytest.mark.parametrize(("n_crashes", "n_starts"), [(0, 1), (2, 3), (99, daemon._ATTEMPTS)])
def test_a_crash_is_tried_again_and_no_other_end(tmp_path: Path, n_crashes: int, n_starts: int) -> None:
    ending = Ending(tmp_path, n_crashes)
    with pytest.raises(ServiceError, match="does not answer"):
        ending.start()
    assert len(ending.starts.read_text()) == n_starts
