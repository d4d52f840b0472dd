"""The kernels against lists and loops, on random reads; and what they promise of a state."""

import datetime as dt
import math

import numpy as np
import pytest
from cases import cases
from hypothesis import given
from hypothesis import strategies as st
from stream_oracle import Known, Read
from stream_oracle import row as expected_row

from features.spec import COLUMNS, UNITS, FeatureSpec
from features.stream import state as kernels
from features.stream.row import row
from features.stream.state import Files, State, new_state, task_number, update, user_number

N_FILES, N_DATASETS = 12, 3
HISTORY_S = 100_000.0


def world(seed: int, *, n_reads: int = 60) -> tuple[Files, list[Read]]:
    """A few files, and reads with ties, silences, several readers, and some that become known late."""
    draw = np.random.default_rng(seed)
    files = Files(
        draw.integers(0, N_DATASETS, N_FILES).astype(np.int32),
        draw.integers(-1, 4, N_FILES).astype(np.int32),
        draw.integers(-1, 10**9, N_FILES),
        draw.integers(-1, 3, N_FILES).astype(np.int32),
        draw.integers(0, 9, N_DATASETS),
        HISTORY_S,
    )
    steps = draw.choice([0.0, 7.0, 900.0, 4000.0, 60_000.0], n_reads, p=[0.2, 0.3, 0.3, 0.1, 0.1])
    counted = 1.75e9 + np.cumsum(steps)
    late = draw.choice([0.0, 0.0, 0.0, 5000.0, 30_000.0, 150_000.0], n_reads)
    n_readers = 2 + seed % 7
    reads = [
        Read(
            float(from_s - late_s),
            int(draw.integers(0, N_FILES)),
            int(draw.integers(0, n_readers)),
            float(draw.choice([1, 1, 2, 1000])),
            float(from_s),
        )
        for from_s, late_s in zip(counted, late, strict=True)
    ]
    return files, reads


def known_of(files: Files) -> Known:
    return Known(
        dataset=files.dataset.tolist(),
        tier=files.tier.tolist(),
        size=files.size_bytes.tolist(),
        rank=files.rank.tolist(),
        n_files=files.n_files.tolist(),
        history_s=files.history_s,
    )


def after(files: Files, reads: list[Read]) -> State:
    state = new_state(files.dataset.size, files.n_files.size)
    for read in reads:
        update(state, files, kernels.Read(read.file, read.reader, read.n, read.at_s, read.counted_s))
    return state


def columns_of(state: State, files: Files, file: int, now_s: float) -> dict[str, float]:
    out = np.zeros(len(COLUMNS), np.float32)
    row(state, files, file, now_s, out)
    return dict(zip(COLUMNS, out.tolist(), strict=True))


@cases(20, thorough=1000)
@given(st.integers(0, 10**6))
def test_every_column_is_what_the_list_of_reads_says(seed: int) -> None:
    files, reads = world(seed)
    for n in (1, 5, 25, len(reads)):
        state, now_s = after(files, reads[:n]), reads[n - 1].counted_s + 600.0 * (seed % 3)
        for file in range(N_FILES):
            expected = expected_row(reads[:n], file, now_s, known_of(files))
            columns = columns_of(state, files, file, now_s)
            assert set(columns) == set(expected)
            for name, value in expected.items():
                assert columns[name] == pytest.approx(value, rel=1e-5, abs=1e-5, nan_ok=True), (name, n, file)


def test_readers_of_both_kinds_never_share_a_number() -> None:
    codes = np.array([0, 1, 2, 2**51 - 1])
    tasks, users = task_number(codes), user_number(codes)
    assert len({0, *tasks.tolist(), *users.tolist()}) == 9
    assert (tasks.astype(np.float64).astype(np.int64) == tasks).all()


def test_a_million_reads_of_one_file_at_one_time() -> None:
    zero, unranked = np.zeros(1, np.int32), np.full(1, -1, np.int32)
    files = Files(zero, zero, np.ones(1, np.int64), unranked, np.zeros(1, np.int64), math.inf)
    many = columns_of(after(files, [Read(50.0, 0, 2)] * 100_000), files, 0, 50.0)
    merged = columns_of(after(files, [Read(50.0, 0, 2, 1e5)]), files, 0, 50.0)
    for name in ("n_reads", "decayed_2h", "dataset_decayed_192h", "dataset_n_passes", "pass_0_share"):
        assert many[name] == merged[name], name


def test_every_model_input_has_a_unit() -> None:
    spec = FeatureSpec(cycle_s=1, horizons_s=(1,), candidate_s=1, active_dataset_s=1)
    assert UNITS.keys() == {*spec.numeric_columns, *spec.categorical_columns}
    files, first = world(1)[0], dt.datetime(2026, 3, 5, tzinfo=dt.UTC)
    assert columns_of(after(files, []), files, 0, first.timestamp())["weekday"] == 0
    assert UNITS["weekday"] == f"day of the week, 0 is {first:%A}"
