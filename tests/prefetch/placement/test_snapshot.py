"""The snapshot: what was put in is found, by the same names, also after a trip through bytes."""

import io
import os
import pickle
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.common.errors import InputError
from prefetch.placement.snapshot import (
    MAX_SITES,
    NOBODY,
    NOTHING,
    NOWHERE,
    CacheHolding,
    Snapshot,
    dump,
    load,
    snapshot_of,
)
from replay.ranges import keys_of

SITES = ("A", "B", "C")
MAGIC = dump(NOTHING).partition(b"\n")[0] + b"\n"
CACHES = (("xc1", "A"), ("xc2", "A"), ("xc3", "B"))
dids = st.text("abc/:#é", min_size=1, max_size=12)
rows = st.lists(st.integers(0, 2), max_size=3, unique=True)
held = st.tuples(st.integers(0, 100), *[st.integers(0, 120)] * 6)
contents = st.tuples(st.dictionaries(dids, rows, max_size=20), st.dictionaries(dids, held, max_size=20))
Contents = tuple[dict[str, list[int]], dict[str, tuple[int, ...]]]


def row(sites: list[int]) -> list[int]:
    return (sites or [NOWHERE]) + [NOBODY] * (MAX_SITES - max(len(sites), 1))


def snapshot_with(content: Contents) -> Snapshot:
    placed, items = content
    numbers = np.array(list(items.values()), np.float64).reshape(-1, 7)
    return snapshot_of(
        as_of="2026-03-01T00:00:00Z",
        sites=SITES,
        caches=CACHES,
        capacities={"A": {"xc1": 10, "xc2": 20}, "B": {"xc3": 30}},
        datasets=keys_of(placed),
        placed=np.array([row(sites) for sites in placed.values()], np.uint8).reshape(-1, MAX_SITES),
        items=list(items),
        size_bytes=numbers[:, 0],
        holdings=[
            CacheHolding(np.arange(len(items)), numbers[:, 1 + i], numbers[:, 4 + i]) for i in range(3)
        ],
    )


@given(contents, st.lists(dids, min_size=1))
def test_everything_is_found_as_it_was_put_in(content: Contents, names: list[str]) -> None:
    snapshot = load(dump(snapshot_with(content)))
    placed, items = content
    names = [*names, *placed, *items]
    for did in names:
        placed_row = snapshot.row(did)
        assert placed_row == (bytes(row(placed[did])) if did in placed else None)
        if placed_row is not None:
            assert snapshot.sites_of(placed_row) == tuple(SITES[i] for i in placed[did])
    known = snapshot.fractions(names)
    for i, did in enumerate(names):
        size, *parts = items.get(did, (-1, *[0] * 6))
        shares = [min(1.0, part / size) if size > 0 else 0.0 for part in parts]
        assert known.size_bytes[i] == size
        assert known.cached[i] == pytest.approx(shares[:3])
        assert known.predicted[i] == pytest.approx(shares[3:])
    assert snapshot.caches == CACHES
    assert snapshot.capacities == {"A": {"xc1": 10, "xc2": 20}, "B": {"xc3": 30}}
    assert snapshot.as_of == "2026-03-01T00:00:00Z"


@pytest.mark.parametrize("damage", ["", "x", "cut", "bit"])
def test_damage_is_seen(damage: str) -> None:
    data = dump(snapshot_with(({"cms:/A": [1]}, {"cms:/A": (10, *[5] * 6)})))
    damaged = {"": b"", "x": b"x" + data, "cut": data[:-9], "bit": data[:200] + b"\xff" + data[201:]}[damage]
    with pytest.raises(InputError, match="cachecast place"):
        load(damaged)


class Planted:
    """What runs when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, ("planted",))


@pytest.mark.parametrize(
    "change",
    [
        {"placed": np.array([Planted()], object)},
        {"placed": np.zeros((0, MAX_SITES), np.uint8)},
        {"item_keys": np.zeros(1)},
        {"size_bytes": np.zeros(3, np.int64)},
        {"first_row": np.array([0, 9], np.uint32)},
        {"row_cache": np.full(3, 200, np.uint8)},
        {"head": np.frombuffer(b"[]", np.uint8)},
        {"head": np.frombuffer(b'{"as_of": "", "sites": [], "caches": [], "loads": []}', np.uint8)},
    ],
)
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_what_somebody_else_has_written_into_the_database_is_damage(
    change: dict[str, Any], save: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its checksum is right. With arrays that do not fit each answer would fail; on older ones it goes on."""
    monkeypatch.chdir(tmp_path)
    whole = dump(snapshot_with(({"cms:/A": [1]}, {"cms:/A": (10, *[5] * 6)})))
    with np.load(io.BytesIO(whole[len(MAGIC) : -8])) as stored:
        arrays = dict(stored)
    for others in ({}, change):
        content = io.BytesIO()
        save(content, **arrays | others)
        body = MAGIC + content.getvalue()
        data = body + zlib.crc32(body).to_bytes(8, "little")
        if others or save is np.savez_compressed:
            with pytest.raises(InputError, match="cachecast place"):
                load(data)
        else:
            assert load(data).row("cms:/A") is not None
    assert not (tmp_path / "planted").exists()


@pytest.mark.parametrize("inside", [b"", b"PK", b"\x93NUMPY", pickle.dumps(Planted())])
def test_what_is_no_archive_at_all_is_damage(inside: bytes) -> None:
    body = MAGIC + inside
    with pytest.raises(InputError, match="cachecast place"):
        load(body + zlib.crc32(body).to_bytes(8, "little"))


def test_nothing_is_known_before_the_first_refresh() -> None:
    assert NOTHING.row("cms:/A") is None
    assert NOTHING.fractions(["cms:/A"]).size_bytes.tolist() == [-1]
    assert load(dump(NOTHING)).as_of == ""
