"""What caches fetched, by their g-streams: against a cache of blocks in plain Python that knows it."""

import dataclasses
import datetime as dt
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from monitoring import Sender
from pulls import DAY, pulled_text
from raw_records import catalogue

from features.schema import ACCESSES
from jobs.ground.store.tables import Tables
from jobs.loop.ingest.pull_input import PullSummary
from prefetch.xcache.events import frame

START_S, DAY_S = 1772323200, 86400
BLOCK, N_BLOCKS = 2**20, 30
SIZE = BLOCK * N_BLOCKS
Row = dict[str, Any]


@dataclasses.dataclass
class Cache:
    """Blocks of one file on disk. Reads of a block that is coming are hits; `fetched`: bytes by close."""

    lfn: str = "/store/f.root"
    says_todisk: bool = False
    blocks: set[int] = dataclasses.field(default_factory=set)
    n_accesses: int = 0
    closes: list[Row] = dataclasses.field(default_factory=list)
    fetched: list[int] = dataclasses.field(default_factory=list)

    def read(self, at_s: int, blocks: Iterable[int], *, times: int = 1, ahead: int = 0) -> None:
        read_blocks = set(blocks)
        until = min(N_BLOCKS, max(read_blocks) + 1 + ahead)
        new = (read_blocks | set(range(until) if ahead else ())) - self.blocks
        self.blocks |= new
        n_missed = len(new & read_blocks) * BLOCK // 16
        self._close(at_s, times * len(read_blocks) * BLOCK - n_missed, n_missed, len(new) * BLOCK)

    def touch(self, at_s: int, blocks: Iterable[int] = ()) -> None:
        """A pin's touch, or a prefetch of ours: a byte of each block."""
        new = set(blocks) - self.blocks
        self.blocks |= new
        self._close(at_s, 0, len(new), len(new) * BLOCK)

    def evict(self) -> None:
        self.blocks, self.n_accesses = set(), 0

    def _close(self, at_s: int, hit: int, missed: int, fetched: int) -> None:
        self.n_accesses += 1
        whole = len(self.blocks) * BLOCK == SIZE and not fetched
        stated = {"b_todisk": fetched, "b_prefetch": 0} if self.says_todisk else {}
        self.fetched.append(fetched)
        self.closes.append(
            {
                **{"event": "file_close", "lfn": self.lfn, "size": SIZE, "blk_size": BLOCK},
                **{"n_blks": N_BLOCKS, "n_blks_done": len(self.blocks), "access_cnt": self.n_accesses},
                **{"attach_t": at_s, "detach_t": at_s + 60, "remotes": [] if whole else ["eos:1094"]},
                **{"b_hit": hit, "b_miss": missed, "b_bypass": 0, "n_cks_errs": 0, **stated},
            }
        )


def datagrams(closes: Sequence[Row]) -> list[bytes]:
    """A datagram per close, as the collector writes it down."""
    numbered = ((Sender("h", 1094, "xc", "XC", 1772323000, 1, n), close) for n, close in enumerate(closes))
    return [frame(close["detach_t"] + 1, 4000, sender.gstream(close, ahead=0)) for sender, close in numbered]


def pull(tables: Tables, folder: Path, pieces: Sequence[Sequence[bytes]]) -> list[PullSummary]:
    texts = (b"".join(piece).decode() for piece in pieces)
    return [pulled_text(tables, folder, "xcache_gstream", text, day=DAY) for text in texts]


def list_files(tables: Tables, folder: Path, names: Sequence[str]) -> None:
    """Pull a catalogue that has these files in a scope that their paths do not tell."""
    pulled_text(tables, folder, "rucio_files", catalogue(names, "acada"), day=DAY)


def rows(tables: Tables) -> list[Row]:
    return (
        tables.read_arrow(ACCESSES)
        .sort_by([("accessed_at", "ascending"), ("event_id", "ascending")])
        .to_pylist()
    )


def bytes_of(tables: Tables) -> list[tuple[int | None, int | None]]:
    return [(row["bytes_missed"], row["bytes_hit"]) for row in rows(tables)]


def lives(seed: int, lfn: str, *, says_todisk: bool) -> Cache:
    """Some lives of a file over some days: parts and wholes are read, pinned, evicted, read ahead."""
    rng, cache, at_s = random.Random(f"{seed} {lfn}"), Cache(lfn, says_todisk), START_S
    for _ in range(12):
        at_s += rng.choice((int(says_todisk), 60, 3600, DAY_S, 2 * DAY_S))
        first = rng.randrange(N_BLOCKS)
        part = range(first, rng.randint(first + 1, N_BLOCKS))
        match rng.choice(("part", "part", "whole", "twice", "ahead", "touch", "evict", "evict ahead")):
            case "part":
                cache.read(at_s, part)
            case "whole":
                cache.read(at_s, range(N_BLOCKS))
            case "twice":
                cache.read(at_s, part, times=2)
            case "ahead":
                cache.read(at_s, part, ahead=5)
            case "touch":
                cache.touch(at_s)
            case evicted:
                cache.evict()
                at_s += 1
                cache.read(at_s, part, ahead=3 * evicted.endswith("ahead"))
    return cache


@pytest.mark.parametrize(
    ("seed", "where", "says_todisk"),
    [
        *((0, "/store", False), (1, "/ctao", True)),
        *(
            pytest.param(*case, marks=pytest.mark.verify)
            for case in ((0, "/store", True), (1, "/ctao", False))
        ),
    ],
)
def test_what_was_fetched_does_not_depend_on_how_captures_are_cut(
    tmp_path: Path, seed: int, where: str, says_todisk: bool
) -> None:
    """Nor on when the catalogue is pulled, which tells the scope of paths that do not."""
    rng = random.Random(seed)
    caches = [lives(seed, f"{where}/f{n}.root", says_todisk=says_todisk) for n in range(6)]
    sent = datagrams([close for cache in caches for close in cache.closes])
    whole = Tables(str(tmp_path / "whole"))
    pull(whole, tmp_path, [sent])
    list_files(whole, tmp_path, [cache.lfn for cache in caches] if where == "/ctao" else [])
    reads_by_key = {(row["name"], row["disk_accesses"] or 0, row["accessed_at"]): row for row in rows(whole)}
    for cache in caches:
        for close, fetched in zip(cache.closes, cache.fetched, strict=True):
            if (read := close["b_hit"] + close["b_miss"]) <= N_BLOCKS:
                continue
            n_before = 0 if says_todisk else close["access_cnt"]
            row = reads_by_key[cache.lfn, n_before, dt.datetime.fromtimestamp(close["attach_t"], dt.UTC)]
            assert row["bytes_missed"] == fetched
            if fetched < SIZE and row["read_bytes"] == read:
                assert row["bytes_hit"] == max(0, read - fetched)
    for number in range(2):
        pieces = rng.sample(sent, len(sent))
        cuts = sorted(rng.sample(range(len(sent)), 4))
        cut = [pieces[a:b] for a, b in zip([0, *cuts], [*cuts, len(sent)], strict=True)]
        tables = Tables(str(tmp_path / str(number)))
        n_first = rng.randint(1, len(cut) - 1)
        pull(tables, tmp_path, cut[:n_first])
        list_files(tables, tmp_path, [cache.lfn for cache in caches] if where == "/ctao" else [])
        summaries = pull(tables, tmp_path, [*cut[n_first:], cut[0]])
        assert rows(tables) == rows(whole)
        assert summaries[-1].n_new == 0 and not summaries[-1].days
        assert all(summary.n_duplicates >= 0 for summary in summaries)


def test_a_cold_cache_of_large_blocks_is_no_hit(tmp_path: Path) -> None:
    cache, tables = Cache(), Tables(str(tmp_path / "tables"))
    cache.read(START_S, range(N_BLOCKS))
    cache.read(START_S + 100, range(N_BLOCKS))
    pull(tables, tmp_path, [datagrams(cache.closes)])
    assert bytes_of(tables) == [(SIZE, 0), (0, SIZE)]


def test_without_the_record_before_a_read_that_asked_an_origin_is_fetched_whole(tmp_path: Path) -> None:
    """Lost, older than three days, of an earlier life of the file, or of a file that was whole."""
    cache = Cache()
    cache.read(START_S, range(20))
    cache.read(START_S + 3 * DAY_S + 1, range(25))
    cache.read(START_S + 3 * DAY_S + 2, range(30))
    tables = Tables(str(tmp_path / "late"))
    pull(tables, tmp_path, [datagrams(cache.closes)])
    assert [missed for missed, _ in bytes_of(tables)] == [20 * BLOCK, 25 * BLOCK, 5 * BLOCK]
    cache.evict()
    cache.read(START_S + 3 * DAY_S + 3, range(10))
    cache.read(START_S + 3 * DAY_S + 4, range(12, 16))
    tables = Tables(str(tmp_path / "lost"))
    pull(tables, tmp_path, [datagrams([*cache.closes[:3], cache.closes[4]])])
    assert bytes_of(tables)[-1] == (4 * BLOCK, 0)


def test_a_copy_that_the_server_counts_twice_in_part_was_read_once(tmp_path: Path) -> None:
    """xrdcp 5.5 of a file that is not cached: up to half of it stands in `b_hit` twice."""
    cache, tables = Cache(), Tables(str(tmp_path / "tables"))
    cache.read(START_S, range(N_BLOCKS))
    cache.read(START_S + 100, range(N_BLOCKS), times=2)
    cache.closes[0]["b_hit"] += SIZE // 3
    pull(tables, tmp_path, [datagrams(cache.closes)])
    assert [(row["read_bytes"], row["bytes_hit"]) for row in rows(tables)] == [
        (SIZE, 0),
        (2 * SIZE, 2 * SIZE),
    ]


def test_bytes_read_past_the_disk_were_fetched_too(tmp_path: Path) -> None:
    cache, tables = Cache(), Tables(str(tmp_path / "tables"))
    cache.read(START_S, range(10))
    cache.read(START_S + 100, range(12))
    cache.closes[1]["b_bypass"] = 5000
    pull(tables, tmp_path, [datagrams(cache.closes)])
    assert bytes_of(tables)[1] == (2 * BLOCK + 5000, 10 * BLOCK)


@pytest.mark.parametrize(
    ("b_todisk", "hit", "missed"),
    [(0, 70, 35), (30, 70, 35), (60, 40, 65), (100, 0, 105), (200, 0, 205)],
    ids=["not written", "as missed", "came while read", "all", "more was read ahead"],
)
def test_what_was_written_to_disk_was_fetched(tmp_path: Path, b_todisk: int, hit: int, missed: int) -> None:
    cache, tables = Cache(says_todisk=True), Tables(str(tmp_path / "tables"))
    cache.read(START_S, range(10))
    cache.closes[0] |= {"b_hit": 70, "b_miss": 30, "b_bypass": 5, "b_todisk": b_todisk}
    pull(tables, tmp_path, [datagrams(cache.closes)])
    assert bytes_of(tables) == [(missed, hit)]


def test_days_nearby_are_only_written_where_a_row_changes(tables: Tables, tmp_path: Path) -> None:
    cache, other = Cache(), Cache("/store/other.root")
    cache.read(START_S, range(10))
    cache.read(START_S + DAY_S, range(20))
    other.read(START_S + 2 * DAY_S, range(20))
    sent = datagrams([*cache.closes, *other.closes])
    pull(tables, tmp_path, [sent[1:]])
    before = tables.head(ACCESSES).partitions
    assert bytes_of(tables)[0] == (20 * BLOCK, 0)
    (summary,) = pull(tables, tmp_path, [sent[:1]])
    assert bytes_of(tables)[:2] == [(10 * BLOCK, 0), (10 * BLOCK, 10 * BLOCK)]
    assert (summary.n_new, summary.n_duplicates, summary.days) == (1, 0, ("2026-03-01", "2026-03-02"))
    after = tables.head(ACCESSES).partitions
    assert after[("2026-03-03",)] == before[("2026-03-03",)]
