"""What of the XCache client needs no server: versions, connections, keytabs."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from features.common.errors import ConfigError
from prefetch.xcache import server
from prefetch.xcache.server import parse_version
from prefetch.xcache.session import ThreadConnections


@pytest.mark.parametrize(
    ("answer", "numbers", "capabilities"),
    [
        ("v5.5.3\n", (5, 5, 3), (True, False, False, True)),
        ("v5.6", (5, 6, 0), (False, False, False, True)),
        ("v5.7.2", (5, 7, 2), (False, True, False, True)),
        ("5.8.1", (5, 8, 1), (False, True, True, False)),
        ("v6.2.1", (6, 2, 1), (False, True, True, False)),
        ("v5.10.0-rc1", (5, 10, 0), (False, True, True, False)),
        ("v5.6-rc1", (5, 6, 0), (True, False, False, True)),
        ("5.6.0~rc2", (5, 6, 0), (True, False, False, True)),
        ("v5.7.2rc1", (5, 7, 2), (False, False, False, True)),
        ("v9999.9999", (), (True, False, False, True)),
        ("100.1", (), (True, False, False, True)),
        ("99.1", (99, 1, 0), (False, True, True, False)),
        ("unknown", (), (True, False, False, True)),
    ],
)
def test_a_version_says_what_the_server_does(
    answer: str, numbers: tuple[int, ...], capabilities: tuple[bool, ...]
) -> None:
    version = parse_version(answer)
    assert version.numbers == numbers
    assert capabilities == (
        version.removes_open_files,
        version.reports_written,
        version.stat_tells_whole,
        version.purges_at_start,
    )
    assert ("treated as the oldest" in version.described()) == (not numbers)


def test_each_thread_has_a_connection_and_leaves_it_for_good() -> None:
    connections = ThreadConnections("root://xc.example.org:1094")
    mine = connections.url()
    assert (
        mine == connections.url() and mine.endswith("@xc.example.org:1094") and mine.startswith("root://cc")
    )
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(connections.url).result() not in (mine, connections.spare)
    connections.leave()
    assert connections.url() != mine
    assert ThreadConnections("root://xc.example.org:1094").url() not in (mine, connections.url())


def test_a_keytab_is_ours_alone_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "sss.keytab"
    with pytest.raises(ConfigError, match="No such file"):
        server.use_login(server.KEYTAB, path, "caches.x.keytab")
    path.write_text("0 u:pusher")
    for mode in (0o644, 0o640, 0o660, 0o601, 0o700):
        path.chmod(mode)
        with pytest.raises(ConfigError, match=r"caches.x.keytab: .*chmod 0600"):
            server.use_login(server.KEYTAB, path, "caches.x.keytab")
    path.chmod(0o600)
    link = tmp_path / "link"
    link.symlink_to(path)
    with pytest.raises(ConfigError, match="no plain file"):
        server.use_login(server.KEYTAB, link, "caches.x.keytab")
    if os.geteuid() == 0:
        os.chown(path, 12345, -1)
        with pytest.raises(ConfigError, match="belongs to another user"):
            server.use_login(server.KEYTAB, path, "caches.x.keytab")


def test_one_keytab_a_process(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text("0")
        (tmp_path / name).chmod(0o600)
    script = (
        "import os, sys; from pathlib import Path; from prefetch.xcache import server\n"
        "a, b = map(Path, sys.argv[1:])\n"
        "for _ in range(2): server.use_login(server.KEYTAB, a, 'x')\n"
        "assert os.environ['XrdSecSSSKT'] == str(a)\n"
        "server.use_login(server.KEYTAB, b, 'x')"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "a"), str(tmp_path / "b")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 1 and "put the keys of all caches into one file" in ended.stderr
