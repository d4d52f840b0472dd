"""`cachecast replay` and `cachecast curve`, as they are typed, on a real trace."""

import csv
import json
import random
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from features.common.errors import CachecastError
from jobs.cli.main import app
from jobs.studies.simulate import replay_trace

ROW = [
    *("policy", "capacity_bytes", "capacity_fraction", "requests", "hits", "hit_ratio", "byte_hit_ratio"),
    *("object_miss_ratio", "byte_miss_ratio", "bytes_requested", "wan_bytes", "prefetch_bytes"),
    *("prefetch_precision", "prefetch_coverage", "wasted_bytes", "refetch_bytes", "bypassed_bytes"),
    *("peak_usage_bytes", "peak_hour_wan_bytes", "byte_gap_closed", "byte_gap_closed_lower"),
    *("byte_gap_closed_upper", "object_gap_closed", "seconds"),
]
# Object and byte miss ratio at 1, 5, 10, 20 % of the footprint, as libcachesim has them.
CLOUDPHYSICS = {
    "lru": [(0.8338837, 0.9800275), (0.8228537, 0.9689885), (0.8096810, 0.9518164), (0.7332795, 0.8641825)],
    "clairvoyant": [
        (0.8004777, 0.9393003),
        (0.7234351, 0.8249635),
        (0.6512751, 0.7320235),
        (0.5736002, 0.6227398),
    ],
}
TINY = "time,id,size\n1,a,10\n2,b,10\n3,a,10\n4,c,10\n5,a,10\n6,b,10\n"


def cachecast(*words: str | Path) -> Result:
    answer = CliRunner().invoke(app, list(map(str, words)))
    if answer.exception and not isinstance(answer.exception, SystemExit):
        raise answer.exception
    return answer


@pytest.fixture(scope="module")
def cloudphysics(shared: Callable[[str], Path]) -> list[str]:
    path = shared("data/cloudphysics_io.csv.gz")
    return ["--trace", str(path), "--columns", "time=time,item=lbn,size=size"]


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.csv"
    path.write_text(TINY)
    return path


def test_replay_has_the_published_figures(cloudphysics: list[str]) -> None:
    answer = cachecast("replay", *cloudphysics, "--policy", "lru,belady", "--json")
    rows = json.loads(answer.stdout)
    assert all(list(row) == ROW for row in rows)
    assert [row["policy"] for row in rows] == ["lru", "clairvoyant", "bound"] * 4
    for policy, figures in CLOUDPHYSICS.items():
        mine = [row for row in rows if row["policy"] == policy]
        for row, fraction, (objects, in_bytes) in zip(mine, (0.01, 0.05, 0.1, 0.2), figures, strict=True):
            assert row["capacity_bytes"] == int(fraction * 2_029_769_728)
            assert row["object_miss_ratio"] == pytest.approx(objects, abs=1e-7)
            assert row["byte_miss_ratio"] == pytest.approx(in_bytes, abs=1e-7)
            assert row["requests"] == 113_872
    assert "state another size" in answer.stderr


def test_curve_agrees_with_replay_and_says_what_a_ratio_needs(cloudphysics: list[str]) -> None:
    ratios = ["--capacity-fraction", "0.01,0.2", "--byte-hit-ratio", "0.3,0.9", "--hit-ratio", "0.5"]
    answer = json.loads(cachecast("curve", *cloudphysics, *ratios, "--json").stdout)
    points = {point["capacity_bytes"]: point for point in answer["points"]}
    for at, fraction in ((0, 0.01), (3, 0.2)):
        point = points[int(fraction * 2_029_769_728)]
        assert 1 - point["hit_ratio"] == pytest.approx(CLOUDPHYSICS["lru"][at][0], abs=1e-7)
        assert 1 - point["byte_hit_ratio"] == pytest.approx(CLOUDPHYSICS["lru"][at][1], abs=1e-7)
    listed = list(points)
    assert listed == sorted(listed)
    assert len(listed) >= 20
    assert listed[-1] == answer["footprint_bytes"] == 2_029_769_728
    known = [point for point in points.values() if point["bound_byte_hit_ratio"] is not None]
    assert len(known) == 5
    for point in known:
        assert point["byte_hit_ratio"] <= point["bound_byte_hit_ratio"] + 1e-12
        assert point["clairvoyant_byte_hit_ratio"] <= point["bound_byte_hit_ratio"] + 1e-12
    hit, near, far = answer["needs"]
    assert far["capacity_bytes"] is None and min(hit["capacity_bytes"], near["capacity_bytes"]) > 0
    assert answer["answers"][2].startswith("A byte hit ratio of 90.0 % is out of reach: at most 53.5 %")
    assert "LRU needs" in answer["answers"][0]
    assert answer["answers"][3].startswith("Doubling 20.3 MB lifts LRU's byte hit ratio from 2.0 % to")


def test_a_curve_of_petabytes_agrees_with_a_replay_to_the_byte(tmp_path: Path) -> None:
    draw, large = random.Random(0), tmp_path / "large.csv"
    reads = [(t, draw.randrange(4)) for t in range(40)]
    large.write_text("time,id,size\n" + "".join(f"{t},{f},{10**15 * (f + 3) // 7}\n" for t, f in reads))
    words = ("--trace", large, "--json", "--capacity", "1PB,2PB")
    rows = json.loads(cachecast("replay", *words, "--policy", "lru", "--no-bound").stdout)
    points = json.loads(cachecast("curve", *words).stdout)["points"]
    wan_bytes = {point["capacity_bytes"]: point["wan_bytes"] for point in points}
    assert [wan_bytes[row["capacity_bytes"]] for row in rows] == [row["wan_bytes"] for row in rows]


@pytest.mark.parametrize("command", ["replay", "curve"])
@pytest.mark.parametrize("suffix", [".html", ".svg", ".csv", ".parquet", ".json"])
def test_an_answer_is_written_as_its_name_says(tiny: Path, tmp_path: Path, command: str, suffix: str) -> None:
    out = tmp_path / "new" / f"answer{suffix}"
    words: list[str | Path] = ["--trace", tiny, "--capacity", "20", "--json", "--out", out]
    answer = json.loads(cachecast(command, *words).stdout)
    rows = answer if command == "replay" else answer["points"]
    if suffix in (".html", ".svg"):
        text = out.read_text()
        assert (text.count('class="plot"') if suffix == ".html" else text.count("<svg")) == 1
        assert ("<html" in text) == (suffix == ".html")
    elif suffix == ".csv":
        with out.open() as file:
            capacities = [row["capacity_bytes"] for row in csv.DictReader(file)]
        assert capacities == [str(row["capacity_bytes"]) for row in rows]
    else:
        written = json.loads(out.read_text()) if suffix == ".json" else pq.read_table(out).to_pylist()
        assert written == rows


def test_the_bound_alone_is_drawn_too(tiny: Path, tmp_path: Path) -> None:
    words = ["--policy", "bound", "--capacity", "20", "--out", str(tmp_path / "bound.svg")]
    cachecast("replay", "--trace", tiny, *words)
    assert "<svg" in (tmp_path / "bound.svg").read_text()


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--policy", "lru+plan"], "needs the site's tables"),
        (
            ["--policy", "fifo9"],
            r"no policy is called 'fifo9'; there are lru, .*-bypass, steward, .*-auto, lru+plan, bound",
        ),
        (["--capacity", "0"], "a cache needs room"),
        (["--capacity-fraction", "0.0001"], "a cache needs room"),
        (["--out", "x.pdf"], "must end in one of .html"),
        (["--out", "/nope/where.html"], "there is no folder /nope"),
        (["--columns", "item"], "not names of columns"),
        (["--purge-interval", "60"], "needs --watermarks"),
        (
            ["--capacity", "9", "--from", "2030-01-01"],
            "2030-01-01T00:00:00Z, .* is after the last access at 1970-",
        ),
        (["--site", "here"], "no column site"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes_are_told(tiny: Path, words: list[str], error: str) -> None:
    with pytest.raises(CachecastError, match=error.replace("+", r"\+")):
        cachecast("replay", "--trace", tiny, *words)


OWN = """
def never(trace, capacity_bytes, hit):
    print("a policy may print")
    return 0
"""


def test_a_policy_of_ones_own_has_its_row_and_page(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    policies, page = f"lru,{tmp_path / 'own.py'}:never", tmp_path / "page.html"
    words = ["--policy", policies, "--capacity", "20", "--json", "--out", str(page)]
    answer = cachecast("replay", "--trace", tiny, *words)
    rows = {row["policy"]: row for row in json.loads(answer.stdout)}
    assert (rows["never"]["hits"], rows["never"]["wan_bytes"]) == (0, 60)
    assert rows["never"]["byte_gap_closed"] < 0 == rows["lru"]["byte_gap_closed"]
    assert "never" in page.read_text()
    with pytest.raises(CachecastError, match="never caches whole files"):
        cachecast("replay", "--trace", tiny, "--policy", policies[4:], "--block-size", "5B")


def test_several_caches_share_a_trace_and_leave_nothing_else_to_choose(tiny: Path, tmp_path: Path) -> None:
    fleet, page = tmp_path / "fleet.toml", tmp_path / "fleet.html"
    fleet.write_text('[[caches]]\nname = "half"\ncount = 2\ncapacity = "40"\n')
    answer = cachecast("replay", "--trace", tiny, "--caches", fleet, "--json", "--out", page)
    rows = json.loads(answer.stdout)
    assert rows[0] | {"cache": "all", "capacity_bytes": 80, "requests": 6, "hits": 3} == rows[0]
    assert sum(row["requests"] for row in rows[1:]) == 6
    assert "<svg" in page.read_text()
    with pytest.raises(CachecastError, match="--caches"):
        cachecast("replay", "--trace", tiny, "--caches", fleet, "--capacity", "10")


def test_parts_of_files_are_for_policies_that_cache_parts(tmp_path: Path) -> None:
    """Two files of 10 bytes of which 4 are read by blocks of 5 fit into a cache of 10."""
    trace = tmp_path / "parts.csv"
    trace.write_text("time,item,size,read\n" + "".join(f"{t},{t % 2},10,4\n" for t in range(6)))
    words = ("replay", "--trace", trace, "--capacity", "10", "--json", "--columns", "read=read", "--policy")
    (whole,) = json.loads(cachecast(*words, "steward-lru", "--no-bound").stdout)
    (parts,) = json.loads(cachecast(*words, "steward-lru", "--block-size", "5B").stdout)
    assert (whole["hits"], whole["wan_bytes"]) == (0, 60)
    assert (parts["hits"], parts["wan_bytes"], parts["bytes_requested"]) == (4, 10, 24)
    for policies in ("lru,steward-lru", "bound"):
        with pytest.raises(CachecastError, match="caches whole files; choose among steward"):
            cachecast(*words, policies, "--block-size", "5B")
    with pytest.raises(CachecastError, match="--block-size: 0 must be above 0"):
        cachecast(*words, "steward-lru", "--block-size", "0")
    marked = ("--block-size", "5B", "--watermarks", "0.9,1")
    rows = json.loads(cachecast(*words, "lru,steward-lru", *marked).stdout)
    assert [row["policy"] for row in rows] == ["lru", "steward-lru"]


def test_a_run_says_whose_reads_were_replayed_in_which_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = tmp_path / "sites.csv"
    trace.write_text("time,id,size,site\n" + "".join(f"{t},{t % 2},10,{'AB'[t % 2]}\n" for t in range(6)))
    runs: list[tuple[str, dict[str, object]]] = []

    def record(*_: object, what: str, params: dict[str, object]) -> str:
        runs.append((what, params))
        return "1"

    monkeypatch.setattr(replay_trace, "record_run", record)
    words = ("replay", "--trace", trace, "--site", "A", "--policy", "lru", "--capacity", "20", "--mlflow")
    cachecast(*words, "--watermarks", "0.8,0.9", "--purge-interval", "60", "--json")
    cachecast(*words, "--json")
    reads = {"trace": "sites.csv, A", "from": None, "to": None, "block_size": None}
    assert [what for what, _ in runs] == ["sites.csv, A"] * 2
    assert runs[0][1] == reads | {"watermarks": "0.8,0.9", "purge_interval": "1m"}
    assert runs[1][1] == reads | {"watermarks": None, "purge_interval": None}


def test_a_trace_comes_on_stdin_too(tiny: Path) -> None:
    words = ["replay", "--policy", "lru", "--capacity", "9", "--json"]
    piped = CliRunner().invoke(app, [*words, "--trace", "-"], input=tiny.read_bytes())
    assert piped.exception is None
    plain = CliRunner().invoke(app, [*words, "--trace", str(tiny)])
    first, second = ([row | {"seconds": 0} for row in json.loads(run.stdout)] for run in (piped, plain))
    assert first == second
