"""What of the XCache client needs no server: versions, connections, logins; and what a redirector may say."""

import base64
import json
import logging
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from features.common.errors import ConfigError, TargetUnavailable
from prefetch.xcache import redirector, server, session
from prefetch.xcache.redirector import Redirector
from prefetch.xcache.server import BearerToken, parse_version, use_token
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


READ = "storage.read:/store"


def token(**claims: Any) -> bytes:
    payload = json.dumps({"exp": time.time() + 600, "scope": READ} | claims).encode()
    return b"e30." + base64.urlsafe_b64encode(payload).rstrip(b"=") + b".c2ln"


def written(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "token"
    path.write_bytes(content)
    path.chmod(0o600)
    return path


@pytest.mark.parametrize(
    ("claims", "name", "fault"),
    [
        ({}, "/store/f", None),
        ({}, "", None),
        ({}, "/storefront/f", "does not cover /storefront/f"),
        ({"scope": "openid storage.read:/"}, "/store/f", None),
        ({"scope": "read:/store/"}, "/store/f", None),
        ({"scope": "openid"}, "/store/f", None),
        ({"scope": "storage.modify:/store storage.read:/x"}, "/store/f", "does not cover /store/f"),
        ({"scope": 7}, "", "no token with an end"),
        ({"exp": "soon"}, "", "no token with an end"),
        ({"exp": 1}, "", "it expired"),
        ({"exp": -1e400}, "", "no token"),
        ({"exp": float("nan")}, "", "no token"),
        ({"exp": -(10**400)}, "", "no token"),
        ({"exp": True}, "", "no token"),
        ({"aud": ["a", "cache"]}, "", None),
        ({"aud": "https://wlcg.cern.ch/jwt/v1/any"}, "", None),
        ({"aud": ["a", "b\nALARM"]}, "", "its audience is a b ALARM, not cache"),
        ({"aud": "x" * 9999}, "", "not cache"),
    ],
)
def test_the_fault_of_a_token_is_one_line(
    tmp_path: Path, claims: dict[str, Any], name: str, fault: str | None
) -> None:
    login = BearerToken(written(tmp_path, token(**({"aud": "cache"} | claims))), "cache")
    if fault is None:
        assert len(login.checked(name)) == 64
        return
    with pytest.raises(TargetUnavailable, match=fault) as raised:
        login.checked(name)
    assert len(str(raised.value).splitlines()) == 1
    assert len(str(raised.value)) < 500


def test_a_token_that_ends_in_seconds_may_end_on_its_way(tmp_path: Path) -> None:
    with pytest.raises(TargetUnavailable, match=r"it expires in \d s"):
        BearerToken(written(tmp_path, token(exp=time.time() + 9)), None).checked()


parts = st.binary(max_size=100).map(lambda b: b"a." + base64.urlsafe_b64encode(b) + b".c")


@given(st.binary(max_size=300) | parts)
@example(b"a." + base64.urlsafe_b64encode(b"[" * 9000) + b".c")
@example(b"a" * 10**6)
@example(b"")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_anything_is_no_token(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(TargetUnavailable, match="no token"):
        BearerToken(written(tmp_path, content), None).checked()


def test_what_takes_the_place_of_a_token_later_is_looked_at_too(tmp_path: Path) -> None:
    path = written(tmp_path, token())
    login = BearerToken(path, None)
    login.checked()
    path.chmod(0o644)
    with pytest.raises(TargetUnavailable, match="open to others"):
        login.checked()
    real = path.rename(tmp_path / "real")
    real.chmod(0o600)
    path.symlink_to(real)
    with pytest.raises(TargetUnavailable, match="no plain file"):
        login.checked()
    path.unlink()
    os.mkfifo(path, 0o600)
    with pytest.raises(TargetUnavailable, match="no plain file"):
        login.checked()
    path.unlink()
    with pytest.raises(TargetUnavailable, match="No such file"):
        login.checked()


@pytest.mark.parametrize("length", [40, 90, 10**6])
def test_a_token_that_a_server_sends_back_is_in_no_message(
    monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    sent = "eyJhbGciOiJFUzI1NiJ9" + token().decode().removeprefix("e30")
    message = f"no access\nby Bearer {sent[:length]}"
    status = SimpleNamespace(ok=False, code=400, errno=3012, message=message)
    library = SimpleNamespace(FileSystem=lambda _: SimpleNamespace(stat=lambda *_, **__: (status, None)))
    monkeypatch.setattr(session, "_library", lambda: library)
    with pytest.raises(TargetUnavailable, match=r"no access by Bearer \*\*\*\)?$") as raised:
        session.stat("roots://x:1094", "/store/f")
    assert sent[:30] not in str(raised.value)


def test_a_token_file_is_ours_alone_and_goes_over_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, token())
    with pytest.raises(ConfigError, match="over TLS only"):
        use_token(path, None, "root://x:1094", "caches.x.token")
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="open to others"):
        use_token(path, None, "roots://x:1094", "caches.x.token")
    path.chmod(0o600)
    monkeypatch.setenv("BEARER_TOKEN_FILE", "/run/other")
    with pytest.raises(ConfigError, match="/run/other already"):
        use_token(path, None, "roots://x:1094", "caches.x.token")


NODES = {"n1": ["127.0.0.1:1094"], "n2": ["[::1]:1094", "xc2.invalid:1095"]}


def redirector_at(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> Redirector:
    monkeypatch.setattr(redirector, "locations", lambda *_: list(addresses))
    return Redirector("root://127.0.0.1:1", NODES)


@pytest.mark.parametrize(
    ("address", "node"),
    [
        ("127.0.0.1:1094", "n1"),
        ("[::127.0.0.1]:1094", "n1"),
        ("[::ffff:127.0.0.1]:1094", "n1"),
        ("[::1]:1094", "n2"),
        ("XC2.invalid:1095", "n2"),
    ],
)
def test_addresses_are_those_of_configured_nodes_however_they_are_written(
    monkeypatch: pytest.MonkeyPatch, address: str, node: str
) -> None:
    assert redirector_at(monkeypatch, address).holders("/store/f") == {node}


@pytest.mark.parametrize(
    "address",
    ["", ":1094", "127.0.0.1", "127.0.0.1:1095", "127.0.0.1:1094:1", "n1", "n1:1094", "[::2]:1094",
     "x\n:1094", "xc2.invalid.evil.example:1095", "a" * 5000 + ":1094"],
)  # fmt: skip
def test_what_is_no_configured_node_is_named_once_and_not_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, address: str
) -> None:
    asked_of_all = redirector_at(monkeypatch, address, "127.0.0.1:1094")
    with caplog.at_level(logging.WARNING):
        assert [asked_of_all.holders("/store/f"), asked_of_all.serving()] == [{"n1"}, {"n1"}]
    assert len(caplog.records) == 1
    assert all(len(record.getMessage()) < 300 for record in caplog.records)
    assert all(record.getMessage().isprintable() for record in caplog.records)


def test_a_flood_of_strangers_is_cut_and_without_nodes_none_serves(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    many = [f"10.0.{n // 250}.{n % 250}:1094" for n in range(5000)]
    with pytest.raises(TargetUnavailable, match="names no configured node"):
        redirector_at(monkeypatch, *many).serving()
    assert len(caplog.records) <= 1000
    with pytest.raises(TargetUnavailable, match="it names none"):
        redirector_at(monkeypatch).serving()


def test_what_a_drained_node_holds_may_be_fetched_by_others_and_it_serves_nobody(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(redirector, "locations", lambda *_: ["127.0.0.1:1094"])
    drained = Redirector("root://127.0.0.1:1", NODES, frozenset({"n1"}))
    assert drained.holders("/store/f") == drained.serving() == set(), "it is configured"
    assert not caplog.records


def test_a_configured_address_must_be_one() -> None:
    with pytest.raises(ConfigError, match="is no address"):
        Redirector("root://r:1094", {"n1": ["n1"]})
    Redirector("root://r:1094", {"n1": ["n..1:1094"]})  # no name has this address
