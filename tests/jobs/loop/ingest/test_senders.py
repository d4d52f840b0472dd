"""Which cache a record is of: by settings, by the name that its server gives itself, or by its address."""

import base64
import datetime as dt
import json
from pathlib import Path
from typing import Any

import monitoring
import pytest
from access_rows import accesses
from monitoring import Sender, closing, fstream, opening
from pulls import pulled

from features.common.hosts import address_and_port
from features.schema import ACCESSES
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables
from jobs.operator.operate import doctor
from prefetch.xcache.events import frame

START = 1772323200


def close(host: str, at: int, inst: str = "atlas-xcache") -> bytes:
    """A frame of a capture: one close at a server."""
    record = monitoring.close("/store/f", 1000, START + at + 1, b_hit=1000, b_miss=0, remotes=[])
    body = Sender(host, 1094, inst, "", START, len(host), at).gstream(record, ahead=0)
    return frame(START + at + 2, 9931, body)


def caches(tables: Tables) -> list[Any]:
    return sorted(tables.read_arrow(ACCESSES)["cache"].to_pylist())


def test_hosts_of_one_name_are_warned_of_and_told_apart_by_a_setting(tables: Tables, tmp_path: Path) -> None:
    path = tmp_path / "x.capture"
    path.write_bytes(close("xc-a", 1) + close("xc-b", 2) + close("xc-c", 3, inst="other"))
    (alarm,) = pulled(tables, "xcache_gstream", path).alarms
    assert alarm.startswith("xc-a:1094, xc-b:1094 report as 'atlas-xcache' and count as one cache")
    assert caches(tables) == ["atlas-xcache", "atlas-xcache", "other"]
    before = tables.read_arrow(ACCESSES)["event_id"].to_pylist()
    named = pulled(tables, "xcache_gstream", path, senders={"xc-a": "a", "xc-b:1094": "b"})
    assert (named.alarms, caches(tables)) == ((), ["a", "b", "other"])
    assert sorted(tables.read_arrow(ACCESSES)["event_id"].to_pylist()) == sorted(before)
    assert pulled(tables, "xcache_gstream", path, senders={"xc-a": "a", "xc-b:1094": "b"}).n_new == 0


def test_settings_may_write_an_address_as_they_like(tables: Tables, tmp_path: Path) -> None:
    path, site = tmp_path / "x.capture", tmp_path / "site.toml"
    path.write_bytes(close("[2001:db8::17]", 1) + close("2001:db8::18", 2))
    server = 'kind = "xcache"\nurl = "root://x"\ncapacity = 1\n'
    hosts = {"a": "[2001:DB8:0::17]:1094", "b": "[2001:DB8::18]"}
    tables_of = (
        f'[caches.{name}]\nname = "{name}"\n{server}hosts = ["{host}"]\n' for name, host in hosts.items()
    )
    site.write_text("".join(tables_of))
    pulled(tables, "xcache_gstream", path, senders=Settings.load(site, env={}).senders)
    assert caches(tables) == ["a", "b"]


def reads(counts: list[int], **named: str | None) -> list[dict[str, Any]]:
    """Reads of one file after the other, each with its count of accesses, as a cache records them."""
    at = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
    return [
        {"name": f"{n // 4}", "accessed_at": at + n * dt.timedelta(seconds=1), "known_at": at, **named}
        | {"disk_accesses": count, "event_id": f"{named} {n}"}
        for n, count in enumerate(counts)
    ]


@pytest.mark.parametrize(
    ("rows", "state", "words"),
    [
        ([], "off", "no records"),
        (reads([1, 2, 3, 1] * 10), "ok", "one name"),
        (reads([5, 6, 1, 2]), "ok", "one name"),
        (reads([5, 1, 6, 7]), "bad", "several servers report as 'xc', or"),
        (reads([1], site="A") + reads([1], site="B"), "bad", "servers of 2 sites (A, B) report as 'xc'"),
        (
            reads([1] * 48) + reads([0] * 44, source="xrootd_fstream", cache="192.0.2.7"),
            "bad",
            """'192.0.2.7' reads what 'xc' reads: if they are one cache, set hosts = ["192.0.2.7"] in""",
        ),
        (reads([1] * 48) + reads([0] * 44, cache="other"), "ok", "one name"),
    ],
)
def test_the_doctor_sees_in_the_tables_what_no_single_pull_shows(
    tables: Tables, rows: list[dict[str, Any]], state: str, words: str
) -> None:
    if rows:
        tables.replace_arrow(ACCESSES, accesses(rows, source="xcache_gstream", cache="xc"))
    check = next(row for row in doctor.run(Settings.load(tables=tables.root, env={})) if row.part == "hosts")
    assert (check.state, words in check.detail) == (state, True), check


@pytest.mark.parametrize(
    ("remote", "address"),
    [
        ("192.0.2.7:40000", "192.0.2.7"),
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:c00:0:c:ffff:120c:1b1:51729", "2001:db8:c00:0:c:ffff:120c:1b1"),
        ("[2001:db8:c00:0:c:ffff:120c:1b1]:51729", "2001:db8:c00:0:c:ffff:120c:1b1"),
        ("2001:db8:c00:0:c:ffff:120c:1111", "2001:db8:c00:0:c:ffff:120c:1111"),
        ("2001:DB8::1", "2001:db8::1"),
        ("[::ffff:192.0.2.7]:1", "192.0.2.7"),
        ("xc.example.org:40000", "xc.example.org"),
        ("xc.example.org", "xc.example.org"),
    ],
)
def test_an_address_has_one_form(remote: str, address: str) -> None:
    assert address_and_port(remote)[0] == address


def test_a_loopback_address_names_no_cache(tables: Tables, tmp_path: Path) -> None:
    lines = []
    for stod, remote in ((5, "127.0.0.1:1"), (6, "[::1]:2"), (7, "192.0.2.7:3")):
        sent = fstream(opening(1), closing(1), pseq=1, begin=START, end=START + 1, stod=stod, sid=9)
        lines.append(json.dumps({"remote": remote, "data": base64.b64encode(sent).decode()}))
    (tmp_path / "x.jsonl").write_text("\n".join(lines))
    (alarm,) = pulled(tables, "xrootd_fstream", tmp_path / "x.jsonl", senders={"192.0.2.7": "xc"}).alarms
    assert "each of 2 starts of a server" in alarm
    assert caches(tables) == ["server-5-9", "server-6-9", "xc"]
