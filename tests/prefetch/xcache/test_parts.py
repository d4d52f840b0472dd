"""What of the XCache client needs no server: versions, connections, keytabs."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from features.errors import ConfigError
from prefetch.xcache import keytab
from prefetch.xcache.lanes import Lanes
from prefetch.xcache.version import parse_version


@pytest.mark.parametrize(
    ("answer", "numbers", "removes", "tells"),
    [
        ("v5.5.3\n", (5, 5, 3), True, False),
        ("v5.6", (5, 6, 0), False, False),
        ("5.8.1", (5, 8, 1), False, True),
        ("v6.2.1", (6, 2, 1), False, True),
        ("v5.10.0-rc1", (5, 10, 0), False, True),
        ("unknown", (), True, False),
    ],
)
def test_a_version_says_what_the_server_does(
    answer: str, numbers: tuple[int, ...], removes: bool, tells: bool
) -> None:
    version = parse_version(answer)
    assert (version.numbers, version.removes_open_files, version.stat_tells_whole) == (
        numbers,
        removes,
        tells,
    )


def test_each_thread_has_a_connection_and_leaves_it_for_good() -> None:
    lanes = Lanes("root://xc.example.org:1094")
    mine = lanes.url()
    assert mine == lanes.url() and mine.endswith("@xc.example.org:1094") and mine.startswith("root://cc")
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(lanes.url).result() not in (mine, lanes.spare)
    lanes.leave()
    assert lanes.url() != mine
    assert Lanes("root://xc.example.org:1094").url() not in (mine, lanes.url())


def test_a_keytab_is_ours_alone_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "sss.keytab"
    with pytest.raises(ConfigError, match="No such file"):
        keytab.use(path, "caches.x.keytab")
    path.write_text("0 u:pusher")
    for mode in (0o644, 0o640, 0o660, 0o601, 0o700):
        path.chmod(mode)
        with pytest.raises(ConfigError, match=r"caches.x.keytab: .*chmod 0600"):
            keytab.use(path, "caches.x.keytab")
    path.chmod(0o600)
    link = tmp_path / "link"
    link.symlink_to(path)
    with pytest.raises(ConfigError, match="no plain file"):
        keytab.use(link, "caches.x.keytab")
    if os.geteuid() == 0:
        os.chown(path, 12345, -1)
        with pytest.raises(ConfigError, match="belongs to another user"):
            keytab.use(path, "caches.x.keytab")


def test_one_keytab_a_process(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text("0")
        (tmp_path / name).chmod(0o600)
    script = (
        "import os, sys; from pathlib import Path; from prefetch.xcache import keytab\n"
        "a, b = map(Path, sys.argv[1:])\n"
        "keytab.use(a, 'x'); keytab.use(a, 'x'); assert os.environ['XrdSecSSSKT'] == str(a)\n"
        "keytab.use(b, 'x')"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "a"), str(tmp_path / "b")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 1 and "put the keys of all caches into one file" in ended.stderr
