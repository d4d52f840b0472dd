"""libCacheSim's binary formats, written here field by field."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from features.common.errors import InputError
from replay.read import read_trace
from replay.trace import Trace

ROWS = [(5, 2**63 + 1, 3), (5, 7, 2**32 - 1), (9, 2**63 + 1, 3)]
MAGIC = 0x123456789ABCDEF0


def oracle(rows: list[tuple[int, int, int]] = ROWS) -> bytes:
    return b"".join(struct.pack("<IQIq", at, item, size, -1) for at, item, size in rows)


def lcs(
    rows: list[tuple[int, int, int]] = ROWS, version: int = 3, stated: int | None = None, tail: int = MAGIC
) -> bytes:
    words = [0] * 1024
    words[0], words[1], words[2], words[3], words[-1] = MAGIC, version, 1, stated or len(rows), tail
    body = b"".join(struct.pack("<IQqIIq", at, item, size, 2, 0, -1) for at, item, size in rows)
    return struct.pack("<1024Q", *words) + body


def check(trace: Trace, rows: list[tuple[int, int, int]] = ROWS) -> None:
    assert trace.time_s.tolist() == [at for at, _, _ in rows]
    assert [trace.names[i].as_py() for i in trace.item] == [str(item) for _, item, _ in rows]
    assert trace.size_bytes[trace.item].tolist() == [size for _, _, size in rows]


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("t.oracleGeneral", bytes),
        ("t.oracleGeneral.bin.gz", gzip.compress),
        ("t.oracleGeneral.zst", lambda raw: pa.compress(raw, "zstd", asbytes=True)),
    ],
)
def test_oracle_general_is_known_by_its_name(
    tmp_path: Path, name: str, pack: Callable[[bytes], bytes]
) -> None:
    (tmp_path / name).write_bytes(pack(oracle()))
    check(read_trace(tmp_path / name).trace)


def test_oracle_general_of_any_name_is_read_when_said(tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(oracle())
    check(read_trace(tmp_path / "x.bin", kind="oracleGeneral").trace)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_lcs_is_known_by_its_magic_and_has_64_bit_sizes(
    tmp_path: Path, pack: Callable[[bytes], bytes]
) -> None:
    rows = [*ROWS, (10, 8, 2**40)]
    (tmp_path / "x").write_bytes(pack(lcs(rows)))
    check(read_trace(tmp_path / "x").trace, rows)


@pytest.mark.parametrize(
    ("raw", "kind", "match"),
    [
        (oracle()[:-1], "oracleGeneral", r"cut off within record 3 \(23 of 24 bytes\)"),
        (lcs()[:-5], "lcs", r"cut off within record 3 \(31 of 36 bytes\)"),
        (lcs(stated=4), "lcs", "ends after record 3, but its header states 4"),
        (lcs()[:100], "lcs", "ends within the LCS header, before record 1"),
        (lcs(version=2), "lcs", "LCS version 2; convert it"),
        (lcs(tail=0), "lcs", "lacks the magic number"),
        (lcs([(1, 1, -5)]), "lcs", "row 1 has size -5"),
        (lcs([(2, 1, 5), (1, 1, 5)]), "lcs", "row 2 has time 1, earlier than 2"),
        (oracle([]), "oracleGeneral", "no row"),
        (gzip.compress(oracle(), mtime=0)[:-12], "oracleGeneral", "cannot be decompressed|cut off"),
    ],
)
def test_faults_are_told_with_the_record(tmp_path: Path, raw: Any, kind: Any, match: str) -> None:
    (tmp_path / "x").write_bytes(raw)
    with pytest.raises(InputError, match=match):
        read_trace(tmp_path / "x", kind=kind)
