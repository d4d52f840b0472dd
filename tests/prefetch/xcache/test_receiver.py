from __future__ import annotations

import json
import socket
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.errors import ServiceError
from prefetch.xcache.receiver import COUNTS, Receiver
from prefetch.xcache.rolling import RollingFiles

VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=4), inner)),
    max_leaves=4,
)
HEADERS = st.fixed_dictionaries(
    {
        "code": st.sampled_from(["g", "=", "f"]),
        "pseq": VALUES | st.integers(0, 2000),
        "stod": st.integers(1, 5),
    },
    optional={"sid": st.integers(1, 3), "src": VALUES | st.just({"host": "h"}), "gs": st.just({"type": "C"})},
)
DATAGRAMS = st.one_of(
    st.binary(max_size=200), HEADERS.map(lambda header: json.dumps(header).encode() + b"\n{}\0")
)


def received(folder: Path, datagrams: list[bytes]) -> Receiver:
    files = RollingFiles(folder, roll_bytes=10**6, roll_s=3600)
    receiver = Receiver(files, host="127.0.0.1", port=0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for datagram in datagrams:
            sender.sendto(datagram, ("127.0.0.1", receiver.port))
    receiver.run(lambda: True, report_every_s=60, report=lambda: None)
    files.close()
    return receiver


@settings(max_examples=10, deadline=None)
@given(st.lists(DATAGRAMS, max_size=20))
def test_any_datagrams_are_kept_and_counted(
    tmp_path_factory: pytest.TempPathFactory, datagrams: list[bytes]
) -> None:
    folder = tmp_path_factory.mktemp("captures")
    for _ in range(2):  # the second one takes up where the first one ended
        counts = received(folder, datagrams).counts
        assert (counts["datagrams"], counts["dropped"]) == (len(datagrams), 0)
        assert counts["bytes"] == sum(map(len, datagrams))
        assert set(counts) == set(COUNTS)
        assert all(n >= 0 for n in counts.values())
        assert counts["malformed"] + counts["other"] <= len(datagrams)


def test_it_ends_in_time_while_datagrams_keep_coming(tmp_path: Path) -> None:
    files = RollingFiles(tmp_path, roll_bytes=10**6, roll_s=3600)
    receiver = Receiver(files, host="127.0.0.1", port=0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:

        def stopping() -> bool:
            sender.sendto(b"x", ("127.0.0.1", receiver.port))
            return receiver.counts["datagrams"] > 50

        sender.sendto(b"x", ("127.0.0.1", receiver.port))
        began = time.monotonic()
        receiver.run(stopping, report_every_s=60, report=lambda: None)
    files.close()
    assert time.monotonic() - began < 1


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", -1), ("127.0.0.1", 70_000), ("192.0.2.1", 0)])
def test_an_address_that_cannot_be_had_is_a_service_error(tmp_path: Path, host: str, port: int) -> None:
    files = RollingFiles(tmp_path, roll_bytes=10**6, roll_s=3600)
    with pytest.raises(ServiceError, match="cannot listen"):
        Receiver(files, host=host, port=port)
    files.close()
