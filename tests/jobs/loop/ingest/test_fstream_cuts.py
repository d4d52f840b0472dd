"""An f-stream gives one table, however its datagrams are cut into files and pulls, and in whatever order."""

import base64
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cachecast_main import asked
from monitoring import closing, fstream, opening
from pulls import pulled

from features.schema import ACCESSES, REJECTS, UNPAIRED
from jobs.ground.store.tables import Tables
from jobs.loop.ingest.local_engine import forget_unpaired

START = 1772323200
FOR_WRITING = 3
MIB = 2**20


class File(NamedTuple):
    """An open, what its close says (None: it is still open), and whether it is a read."""

    flags: int
    size: int
    closed: tuple[int, int, int] | None
    is_read: bool


KINDS = [
    File(1, MIB, (MIB, 0, 0), True),
    File(1, MIB, (0, MIB, 0), True),
    File(1, MIB, None, True),
    File(1, MIB, (0, 0, 0), True),
    File(1, 0, (0, 0, 0), True),
    File(1, MIB, (0, 16, 0), False),  # our own prefetch: a byte of each block
    File(1, MIB, (0, 0, MIB), False),
    File(1, MIB, (-1, 0, 0), False),
    File(FOR_WRITING, 0, (0, 0, MIB), False),
    File(FOR_WRITING, 0, (0, 0, 0), False),  # an HTTP PUT
    File(FOR_WRITING, 0, None, False),
    File(FOR_WRITING, MIB, (100, 0, 7), True),  # an update that reads
    File(FOR_WRITING, MIB, (0, 100, 0), True),
]


def line(number: int, record: bytes, remote: str = "192.0.2.7:40000") -> str:
    begin = START + 600 * number
    datagram = fstream(record, pseq=number, begin=begin, end=begin + 10, stod=START - 100, sid=77)
    return json.dumps({"remote": remote, "data": base64.b64encode(datagram).decode()})


def name(at: int) -> str:
    return f"/store/{at}.root"


def stream(files: Sequence[File]) -> list[str]:
    """A datagram for every open, then one for every close."""
    numbered = list(enumerate(files))
    opens = [line(at, opening(at, name(at), size=file.size, flags=file.flags)) for at, file in numbered]
    ended = [(at, file.closed) for at, file in numbered if file.closed is not None]
    closes = [line(len(files) + at, closing(at, *figures)) for at, figures in ended]
    return [*opens, *closes]


def accesses_after(tables: Tables, folder: Path, pieces: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    """The accesses after a pull of each of `pieces`."""
    for number, piece in enumerate(pieces):
        path = folder / f"{number}.jsonl"
        path.write_text("\n".join(piece))
        summary = pulled(tables, "xrootd_fstream", path, salt="pepper")
        assert summary.n_rows == summary.n_new + summary.n_duplicates + sum(summary.n_rejected.values())
    return tables.read_arrow(ACCESSES).sort_by("event_id").to_pylist()


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The accesses of the whole stream."""
    folder = tmp_path_factory.mktemp("whole")
    return accesses_after(Tables(str(folder / "t")), folder, [stream(KINDS)])


def test_what_is_read_and_what_is_written(expected: list[dict[str, Any]]) -> None:
    names = {f"/store/{at}.root" for at, file in enumerate(KINDS) if file.is_read}
    read = {row["name"]: row["read_bytes"] for row in expected}
    assert read.keys() == names
    assert [read["/store/11.root"], read["/store/12.root"]] == [100, 100]


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.verify) for seed in range(4, 8))]
)
def test_the_table_does_not_depend_on_cuts_and_order(
    expected: list[dict[str, Any]], tables: Tables, tmp_path: Path, seed: int
) -> None:
    rng, whole = random.Random(seed), stream(KINDS)
    pieces: list[list[str]] = [[] for _ in range(rng.randint(1, 4))]
    for piece in rng.sample(whole, len(whole)):
        rng.choice(pieces).append(piece)
    assert accesses_after(tables, tmp_path, [*pieces, rng.choice(pieces)]) == expected


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_an_upload_in_two_pulls_is_a_write_in_both(
    tables: Tables, tmp_path: Path, order: tuple[int, int]
) -> None:
    lines = stream([File(FOR_WRITING, 0, (0, 0, MIB), False)])
    assert not accesses_after(tables, tmp_path, [[lines[at]] for at in order])
    assert set(tables.read_arrow(REJECTS)["reason"].to_pylist()) == {"not a read: write"}


def test_a_read_that_turns_out_to_be_none_leaves_the_table_and_its_day_empty(
    tables: Tables, tmp_path: Path
) -> None:
    lines = stream([File(1, MIB, (0, 16, 0), False)])
    assert len(accesses_after(tables, tmp_path, [lines[:1]])) == 1
    assert not accesses_after(tables, tmp_path, [lines[1:]])
    assert not accesses_after(tables, tmp_path, [lines[:1]])


def test_halves_whose_other_half_never_comes_do_not_stay_for_ever(tables: Tables, tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text("\n".join([line(0, closing(1, MIB, 0, 0)), line(1, opening(2, name(2)))]))
    for day, n_kept in (("2026-03-01", 1), ("2026-03-15", 1), ("2026-03-16", 0)):
        options = ["--day", day, "--new-only", "--tables", tables.root]
        asked("pull", "--source", "xrootd_fstream", "--input", path, *options)
        assert tables.head(UNPAIRED).n_rows == n_kept


def test_old_halves_that_another_pull_adds_meanwhile_end_no_pull(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables, head = Tables(str(tmp_path / "t")), Tables.head
    accesses_after(tables, tmp_path, [[line(0, closing(1, MIB, 0, 0))]])
    before = [tables.head(UNPAIRED)]
    accesses_after(tables, tmp_path, [[line(1, closing(2, MIB, 0, 0))]])
    monkeypatch.setattr(Tables, "head", lambda *of: before.pop() if before else head(*of))
    forget_unpaired(tables, before_s=START + 10 * 86400)
    assert tables.head(UNPAIRED).n_rows == 2
    forget_unpaired(tables, before_s=START + 10 * 86400)
    assert tables.head(UNPAIRED).n_rows == 0
