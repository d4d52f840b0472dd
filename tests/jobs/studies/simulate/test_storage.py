"""`storage`: the last replica stays, rules are named, and the traffic is that of an LRU written plainly."""

import datetime as dt
from collections import OrderedDict, defaultdict
from pathlib import Path
from typing import Any

import cachecast_main
import numpy as np
import pytest
from table_rows import put_files

from features.common.errors import InputError
from jobs.ground.store.tables import Tables

DAY_S, N_DAYS, SIZE, N_FILES = 86400, 6, 100_000, 60
Read = tuple[int, int]
KINDS: dict[str, tuple[list[str], list[str] | None]] = {
    "free": (["PIC_DISK", "CERN"], []),
    "ruled": (["CERN", "PIC_DISK"], ["PIC_DISK"]),
    "ruled elsewhere": (["PIC_DISK", "FNAL"], ["FNAL"]),
    "unknown": (["PIC_DISK", "FNAL"], None),
    "on tape": (["PIC_DISK", "CERN_TAPE", "PIC_TAPE"], []),
    "last": (["PIC_DISK"], ["PIC_DISK"]),
    "elsewhere": (["CERN"], []),
}


@pytest.fixture(scope="module")
def reads() -> list[Read]:
    """Time and file: few files often, and the last ten never."""
    rng = np.random.default_rng(5)
    times = np.sort(rng.integers(0, N_DAYS * DAY_S, 900))
    return [(int(at), min(int(rng.zipf(1.4)), N_FILES - 10) - 1) for at in times]


def name(file: int) -> str:
    return f"/store/ds{file // 10}/f{file}.root"


@pytest.fixture
def trace(tmp_path: Path, reads: list[Read]) -> Path:
    rows = [f"{at},{name(file)},{SIZE},ds{file // 10}\n" for at, file in reads]
    path = tmp_path / "t.csv"
    path.write_text("time,path,size,dataset\n" + "".join(rows))
    return path


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """Each dataset is of another kind; of the first, which is read most, another disk has a replica."""
    files = [
        {"name": name(file), "dataset": f"cms:ds{number}", "origins": origins, "locked": locked}
        for number, (origins, locked) in enumerate(KINDS.values())
        for file in range(10 * number, 10 * number + 10)
    ]
    root = tmp_path / "tables"
    put_files(Tables(str(root)), files, size_bytes=SIZE)
    return root


def answer_of(*words: str) -> Any:
    return cachecast_main.asked("storage", *words)


def missed(reads: list[Read], capacity: int) -> list[Read]:
    held: OrderedDict[int, None] = OrderedDict()
    misses = []
    for at, file in reads:
        if file in held:
            held.move_to_end(file)
            continue
        misses.append((at, file))
        held[file] = None
        if len(held) * SIZE > capacity:
            held.popitem(last=False)
    return misses


def busiest_s(reads: list[Read]) -> float:
    hours: dict[int, int] = defaultdict(int)
    for at, _ in reads:
        hours[at // 3600] += SIZE
    return max(hours.values()) / 3600


def test_of_a_trace_alone_all_files_go_and_caches_serve_their_reads(trace: Path, reads: list[Read]) -> None:
    n_read = len({file for _, file in reads})
    answer = answer_of("--trace", str(trace), "--capacity", "500kB,1MB", "--node-disk", "300kB")
    for capacity, point in zip((500_000, 1_000_000), answer["points"], strict=True):
        fetched = missed(reads, capacity)
        assert point["dropped_bytes"] == n_read * SIZE
        assert point["saved_bytes"] == n_read * SIZE - capacity
        assert point["wan_bytes_per_day"] == pytest.approx(len(fetched) * SIZE / N_DAYS)
        assert point["byte_hit_ratio"] == pytest.approx(1 - len(fetched) / len(reads))
        assert point["served_bytes_s"] == pytest.approx(busiest_s(reads))
        assert point["wan_bytes_s"] == pytest.approx(busiest_s(fetched))
        assert (point["nodes"], point["limit"]) == (-(-capacity // 300_000), "disk")
    assert [dataset["dataset"] for dataset in answer["datasets"]][-1] == "ds0"


def test_what_no_other_disk_has_stays_and_rules_are_named(
    trace: Path, reads: list[Read], tables: Path, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    words = ("--trace", str(trace), "--tables", str(tables), "--rse", "pic*", "--capacity", "300kB")
    answer = answer_of(*words, "--out", str(page))
    (point,) = answer["points"]
    assert "a rule keeps it, and on another disk" in page.read_text()
    stored = {kind["kept_by"]: kind["stored_bytes"] for kind in answer["stored"]}
    assert list(stored.values()) == [20 * SIZE, *[10 * SIZE] * 4]
    assert (point["dropped_bytes"], point["rule_bytes"]) == (40 * SIZE, 20 * SIZE)
    assert "2 MB of that are kept by rules, which must go first, or" in answer["findings"][0]
    goes = [read for read in reads if read[1] < 40]
    assert point["wan_bytes_per_day"] == pytest.approx(len(missed(goes, 300_000)) * SIZE / N_DAYS)
    ruled_files = {row["dataset"]: row["ruled_files"] for row in answer["datasets"]}
    assert ruled_files == {"cms:ds0": 0, "cms:ds1": 10, "cms:ds2": 0, "cms:ds3": 10}
    with_ruled = answer_of(*words, "--keep-ruled")
    assert (with_ruled["points"][0]["dropped_bytes"], with_ruled["points"][0]["rule_bytes"]) == (20 * SIZE, 0)
    with pytest.raises(InputError, match=r"no replica is at T2_XX\*; .* CERN, CERN_TAPE, FNAL"):
        answer_of(*(word.replace("pic*", "T2_XX*") for word in words))


def test_a_blank_the_same_and_a_cache_are_no_other_disk_and_old_facts_are_told(
    trace: Path, tables: Path, tmp_path: Path
) -> None:
    lying = [*(["PIC_DISK", other] for other in ("", "PIC_DISK ", "pic_disk", "XC-PIC")), ["XC-PIC"]]
    times = [dt.datetime(2026, 1, day, tzinfo=dt.UTC) for day in (1, 30, 30, 30, 30)]
    rows = [
        {"name": name(k), "origins": origins, "known_at": at}
        for k, (origins, at) in enumerate(zip(lying, times, strict=True))
    ]
    put_files(Tables(str(tables)), rows, size_bytes=SIZE, dataset="cms:ds", locked=[])
    cache = tmp_path / "conf" / "caches"
    cache.mkdir(parents=True)
    words = 'name = "xc"\nkind = "xcache"\nurl = "root://xc:1094"\ncapacity = "1TB"\nrse = "XC-PIC"\n'
    (cache / "xc.toml").write_text(words)
    answer = answer_of(
        *("--trace", str(trace), "--tables", str(tables), "--conf", str(cache.parent)),
        *("--rse", "PIC_DISK", "--rse", "XC*", "--capacity", "100kB"),
    )
    assert [(kind["kept_by"], kind["files"]) for kind in answer["stored"]] == [("the last replica", 4)]
    assert answer["points"][0]["dropped_bytes"] == 0
    assert sum("1 of 4 replicas were last listed" in note for note in answer["notes"]) == 1


def test_the_wan_limits_what_goes_the_most_read_stays(trace: Path, reads: list[Read]) -> None:
    words = ("--trace", str(trace), "--capacity", "300kB")
    whole, limit = answer_of(*words), 150
    assert whole["points"][0]["wan_bytes_s"] > limit
    answer = answer_of(*words, "--network", "150")
    (point,) = answer["points"]
    assert 0 < point["wan_bytes_s"] <= limit
    gone = {dataset["dataset"] for dataset in answer["datasets"]}
    more = whole["datasets"][len(gone)]["dataset"]
    goes = [read for read in reads if f"ds{read[1] // 10}" in {*gone, more}]
    assert busiest_s(missed(goes, 300_000)) > limit
    wide = answer_of(*words, "--network", "1GB")
    assert ["What is read most stays" in " ".join(at["findings"]) for at in (answer, wide)] == [True, False]
