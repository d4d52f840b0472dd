"""What paths, settings and the catalogue tell of reads, whatever was pulled first."""

import itertools
import json
from pathlib import Path

import pytest
from matrix_records import json_lines
from pulls import LOCAL, pulled_text
from raw_records import AT_S, aaa, catalogue, gstream, hashed

from features.common.times import DAY_S
from features.schema import ACCESSES
from jobs.ground.store.tables import Tables
from jobs.loop.ingest.pull_input import Engine

AOD = ("mc26_14TeV", "AOD.40000017._000023.pool.root.1")
AT = hashed(*AOD, "/atlas/rucio")
RUN, RAW, OTHER = "/ctao/dl0/run1.zfits", "/ctao/raw/run1", "/belle/run1"


def names_of(tables: Tables) -> list[tuple[str, str | None]]:
    rows = tables.read_arrow(ACCESSES).sort_by([("accessed_at", "ascending"), ("name", "ascending")])
    return [(row["did"], row["dataset"]) for row in rows.to_pylist()]


def listed(name: str, scope: str, dataset: str, **more: str) -> str:
    (line,) = catalogue([name], scope, dataset).splitlines()
    return json_lines([json.loads(line) | more])


def test_reads_by_a_cache_have_the_catalogues_dataset(tables: Tables, tmp_path: Path) -> None:
    reads = gstream([AT, RUN])
    pulled_text(tables, tmp_path, "xcache_gstream", reads)
    assert names_of(tables) == [(":".join(AOD), None), (f"unknown:{RUN}", None)]
    pulled_text(tables, tmp_path, "rucio_files", catalogue([AOD[1]], AOD[0], "aods"))
    assert names_of(tables)[0] == (":".join(AOD), "mc26_14TeV:aods")
    before = tables.head(ACCESSES)
    assert pulled_text(tables, tmp_path, "xcache_gstream", reads).n_new == 0
    assert tables.head(ACCESSES).id == before.id


def test_a_read_has_no_dataset_that_was_not_known_yet(tables: Tables, tmp_path: Path) -> None:
    later = "2026-04-09T12:00:00Z"
    noon = gstream([AT]).replace(str(AT_S), str(AT_S + DAY_S // 2 + 60))
    pulled_text(tables, tmp_path, "rucio_files", listed(AOD[1], AOD[0], "aods", created_at=later))
    pulled_text(tables, tmp_path, "xcache_gstream", gstream([AT]))
    pulled_text(tables, tmp_path, "xcache_gstream", noon)
    assert [dataset for _, dataset in names_of(tables)] == [None, "mc26_14TeV:aods"]


def pulls() -> list[tuple[str, str]]:
    """Reads of two days, and catalogues that contradict each other."""
    day_2 = (gstream([RUN]) + gstream([AT])).replace(str(AT_S), str(AT_S + DAY_S))
    return [
        ("xcache_gstream", gstream([AT, RUN, OTHER, RAW])),
        ("xcache_gstream", day_2),
        (
            "rucio_files",
            listed(RUN, "acada", "dl0") + listed(OTHER, "belle", "b") + listed(AOD[1], AOD[0], "a"),
        ),
        ("rucio_files", listed(OTHER, "evil", "b")),
        ("rucio_files", listed(AOD[1], AOD[0], "b", updated_at="2026-04-12")),
    ]


ORDERS = list(itertools.permutations(range(5)))[::17]


@pytest.mark.parametrize(
    "order", [*ORDERS[::2], *(pytest.param(order, marks=pytest.mark.verify) for order in ORDERS[1::2])]
)
def test_the_order_of_pulls_makes_no_difference(
    tables: Tables, tmp_path: Path, order: tuple[int, ...]
) -> None:
    for number in order:
        pulled_text(tables, tmp_path, *pulls()[number], scopes={"/ctao/raw": "raw"})
    aod, run = (":".join(AOD), f"{AOD[0]}:b"), (f"acada:{RUN}", "acada:dl0")
    # Two files have the name OTHER.
    assert names_of(tables) == [aod, run, (f"unknown:{OTHER}", None), (f"raw:{RAW}", None), run, aod]


def test_scopes_that_are_set_later_count_for_what_is_there(tables: Tables, tmp_path: Path) -> None:
    reads = gstream([RUN, RAW])
    for scopes in ({}, {"/ctao": "z"}, {"/ctao": "a", "/ctao/dl0": "dl0"}, {"/ctao": "m"}, {}):
        pulled_text(tables, tmp_path, "xcache_gstream", reads, scopes=scopes)
        scope = scopes.get("/ctao", "unknown")
        assert [did for did, _ in names_of(tables)] == [
            f"{scopes.get('/ctao/dl0', scope)}:{RUN}",
            f"{scope}:{RAW}",
        ]


def test_both_engines_settle_alike(spark_engine: Engine, tmp_path: Path) -> None:
    tables_rows = []
    for engine in (spark_engine, LOCAL):
        into = Tables(str(tmp_path / engine.name))
        pulled_text(into, tmp_path, "cms_aaa", aaa([AT, RUN, OTHER]), engine=engine)
        pulled_text(into, tmp_path, *pulls()[2], engine=engine)
        pulled_text(into, tmp_path, *pulls()[3], engine=engine)
        tables_rows.append(into.read_arrow(ACCESSES).to_pylist())
    assert tables_rows[0] == tables_rows[1]
    assert {row["dataset"] for row in tables_rows[0]} == {"mc26_14TeV:a", "acada:dl0", None}
