"""What a redirector says is checked against the configured nodes; it may say anything."""

from __future__ import annotations

import logging

import pytest

from features.common.errors import ConfigError, TargetUnavailable
from prefetch.xcache import redirector
from prefetch.xcache.redirector import Redirector

NODES = {"n1": ["127.0.0.1:1094"], "n2": ["[::1]:1094", "xc2.invalid:1095"]}


def told(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> Redirector:
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
    assert told(monkeypatch, address).holders("/store/f") == {node}


@pytest.mark.parametrize(
    "address",
    ["", ":1094", "127.0.0.1", "127.0.0.1:1095", "127.0.0.1:1094:1", "n1", "n1:1094", "[::2]:1094",
     "x\n:1094", "xc2.invalid.evil.example:1095", "a" * 5000 + ":1094"],
)  # fmt: skip
def test_what_is_no_configured_node_is_named_once_and_not_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, address: str
) -> None:
    found = told(monkeypatch, address, "127.0.0.1:1094")
    with caplog.at_level(logging.WARNING):
        assert [found.holders("/store/f"), found.serving()] == [{"n1"}, {"n1"}]
    assert len(caplog.records) == 1
    assert all(len(record.getMessage()) < 300 for record in caplog.records)
    assert all(record.getMessage().isprintable() for record in caplog.records)


def test_a_flood_of_strangers_is_cut_and_without_nodes_none_serves(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    many = [f"10.0.{n // 250}.{n % 250}:1094" for n in range(5000)]
    with pytest.raises(TargetUnavailable, match="names no configured node"):
        told(monkeypatch, *many).serving()
    assert len(caplog.records) <= 1000
    with pytest.raises(TargetUnavailable, match="it names none"):
        told(monkeypatch).serving()


def test_what_a_drained_node_holds_may_be_fetched_by_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(redirector, "locations", lambda *_: ["127.0.0.1:1094"])
    assert Redirector("root://127.0.0.1:1", NODES, frozenset({"n1"})).holders("/store/f") == set()
    assert not caplog.records


def test_a_configured_address_must_be_one() -> None:
    with pytest.raises(ConfigError, match="is no address"):
        Redirector("root://r:1094", {"n1": ["n1"]})
