"""What holds of the inputs of every source: packed, broken and empty ones, and dumps of many forms."""

import json
from pathlib import Path

import pytest
from pulls import PACKED, pulled
from rucio_avro import write_dump

from features.common.errors import InputError
from features.schema import ACCESSES, FILES, REJECTS
from jobs.ground.store.tables import Tables
from jobs.loop.ingest.pull_input import Engine

GOLDEN = Path(__file__).parents[3] / "golden/pull"
DUMP = GOLDEN / "rucio_dumps/atlas_and_cms/input.json"
LINES = {
    "rucio_traces": "rucio_traces/input.jsonl",
    "rucio_files": "rucio_files/input.jsonl",
    "cms_aaa": "cms_aaa/raw/input.jsonl",
    "cmssw_pop": "cmssw_pop/metric/input.jsonl",
    "atlas_popularity": "atlas_popularity/header/input.tsv",
    "osdf_log": "osdf_log/input.txt",
    "osdf_accesses": "osdf_accesses/input.csv",
    "popularity_series": "popularity_series/input.csv",
}


FORMS = ("rucio_traces", "osdf_log", "atlas_popularity", "popularity_series")  # lines of all forms


@pytest.mark.parametrize(
    "source",
    [*FORMS, *(pytest.param(s, marks=pytest.mark.verify) for s in sorted(LINES.keys() - set(FORMS)))],
)
def test_packed_inputs_give_what_the_plain_one_gives(tables: Tables, tmp_path: Path, source: str) -> None:
    """Pulled after the plain one, a folder of it packed in three ways is all duplicates and refusals."""
    plain = GOLDEN / LINES[source]
    first = pulled(tables, source, plain)
    (tmp_path / "packed").mkdir()
    for suffix, pack in PACKED.items():
        (tmp_path / "packed" / f"{plain.name}.{suffix}").write_bytes(pack(plain.read_bytes()))
    again = pulled(tables, source, tmp_path / "packed")
    assert (again.n_rows, again.n_new) == (3 * first.n_rows, 0)
    assert again.n_rejected == {reason: 3 * n_rows for reason, n_rows in first.n_rejected.items()}


@pytest.mark.parametrize("suffix", sorted(PACKED))
def test_a_file_cut_short_is_an_input_error_that_names_it(
    tables: Tables, tmp_path: Path, suffix: str
) -> None:
    path = tmp_path / f"cut.{suffix}"
    whole = PACKED[suffix](b"".join(b'{"n": %d}\n' % n**7 for n in range(5000)))
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=path.name):
        pulled(tables, "rucio_traces", path)
    assert not tables.exists(ACCESSES)


def test_a_dump_cut_short_is_an_input_error_that_names_it(
    spark_engine: Engine, tables: Tables, tmp_path: Path
) -> None:
    dump = write_dump(DUMP, tmp_path / "dump")
    path = dump / "contents/part-m-00001.avro"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match=path.name):
        pulled(tables, "rucio_dumps", dump, engine=spark_engine)
    assert not tables.exists(FILES)


def test_a_dump_with_numbers_as_text_and_without_compression_says_what_the_golden_one_says(
    spark_engine: Engine, tables: Tables, tmp_path: Path
) -> None:
    dump = write_dump(DUMP, tmp_path / "dump", codec="null", text=("BYTES", "CREATED_AT"))
    pulled(tables, "rucio_dumps", f"{dump}/", engine=spark_engine)
    files = json.loads(DUMP.with_name("expect.json").read_text())["files"]
    for row, file in zip(tables.read_arrow(FILES).sort_by("did").to_pylist(), files, strict=True):
        times = {name: row[name].isoformat() for name in file if name.endswith("_at")}
        assert {name: row[name] for name in file} | times == file


def test_a_dump_without_dids_dates_files_by_their_first_replica(
    spark_engine: Engine, tables: Tables, tmp_path: Path
) -> None:
    content = json.loads(DUMP.read_text())
    del content["dids"]
    (tmp_path / "answers.json").write_text(json.dumps(content))
    dump = write_dump(tmp_path / "answers.json", tmp_path / "dump")
    pulled(tables, "rucio_dumps", dump, engine=spark_engine)
    created = tables.read_arrow(FILES, columns=["scope", "created_at"]).to_pylist()
    expected = min(r["CREATED_AT"] for r in content["replicas"] if (r["NAME"] or "").endswith("/a.root"))
    (created_at,) = [row["created_at"] for row in created if row["scope"] == "cms"]
    assert created_at.timestamp() * 1000 == expected


def test_no_sample_shows_a_user(tables: Tables, tmp_path: Path) -> None:
    """Refused records of users `jdoe` leave no trace of them."""
    collected = {"user": "jdoe", "token_subject": "jdoe", "token_username": "jdoe"}
    cms = {"data": {"user_dn": '/CN="jdoe', "app_info": "1_jdoe:crab", **collected}, "metadata": {}}
    flat = {"data.user_dn": "/CN=jdoe"}
    atlas = {"usr": "jdoe", "usrdn": "/CN=jdoe", "account": "jdoe", "eventType": "get"}
    cut = '{"data": {"user_dn": "/CN=jdoe'
    files = {
        "cms_aaa": [json.dumps(cms), json.dumps(flat), cut],
        "rucio_traces": [json.dumps(atlas)],
        "atlas_popularity": ["2026-03-01\tjdoe\tscope"],
        "osdf_log": ["[Objectname:/x[Host:y]] [Host:jdoe] [Read:1]"],
        "pelican": ['{"remote_ip": "jdoe"}'],
    }
    for source, lines in files.items():
        for number, line in enumerate(lines):
            path = tmp_path / f"{source}-{number}"
            path.write_text(line)
            pulled(tables, source, path)
    samples = tables.read_arrow(REJECTS)["sample"].to_pylist()
    assert len(samples) == 7
    assert not [sample for sample in samples if "jdoe" in sample]
