"""The kernels against lists and loops, on random reads; and what they promise of a state."""

from __future__ import annotations

import numpy as np
import pytest
from stream_oracle import Read
from stream_oracle import row as expected_row

from features.stream.columns import COLUMNS
from features.stream.row import row
from features.stream.state import Files, State, new_state, update

PAUSE_S = 3 * 3600.0
N_FILES, N_DATASETS = 12, 3


def world(seed: int, *, n_reads: int = 60) -> tuple[Files, list[Read]]:
    """A few files, and reads with ties, silences and several readers."""
    draw = np.random.default_rng(seed)
    dataset = draw.integers(0, N_DATASETS, N_FILES).astype(np.int32)
    files = Files(
        dataset,
        draw.integers(0, 4, N_FILES).astype(np.int32),
        draw.integers(1, 10**9, N_FILES),
        np.full(N_FILES, -1, np.int32),
        PAUSE_S,
    )
    steps = draw.choice([0.0, 7.0, 900.0, 4000.0, 40_000.0], n_reads, p=[0.2, 0.3, 0.3, 0.1, 0.1])
    times = 1.75e9 + np.cumsum(steps)
    n_readers = 2 + seed % 5
    reads = [
        Read(float(at), int(draw.integers(0, N_FILES)), int(draw.integers(0, n_readers))) for at in times
    ]
    return files, reads


def after(files: Files, reads: list[Read]) -> State:
    state = new_state(N_FILES, np.zeros(N_DATASETS, np.int64))
    for read in reads:
        update(state, files, read.file, read.reader, read.at_s)
    return state


def columns_of(state: State, files: Files, file: int, now_s: float) -> dict[str, float]:
    out = np.zeros(len(COLUMNS), np.float32)
    row(state, files, file, now_s, out)
    return dict(zip(COLUMNS, out.tolist(), strict=True))


@pytest.mark.parametrize("seed", range(12))
def test_every_column_is_what_the_list_of_reads_says(seed: int) -> None:
    files, reads = world(seed)
    for n in (1, 5, 25, len(reads)):
        state, now_s = after(files, reads[:n]), reads[n - 1].at_s + 600.0 * (seed % 3)
        for file in range(N_FILES):
            expected = expected_row(
                reads[:n],
                file,
                now_s,
                dataset=files.dataset.tolist(),
                tier=files.tier.tolist(),
                size=files.size_bytes.tolist(),
                pause_s=PAUSE_S,
            )
            found = columns_of(state, files, file, now_s)
            assert set(found) == set(expected)
            for name, value in expected.items():
                assert found[name] == pytest.approx(value, rel=1e-5, abs=1e-5, nan_ok=True), (name, n, file)


def test_a_catalogue_gives_places_and_numbers_of_files_before_they_are_read() -> None:
    files = Files(
        np.zeros(3, np.int32),
        np.zeros(3, np.int32),
        np.ones(3, np.int64),
        np.array([2, 0, 1], np.int32),
        PAUSE_S,
    )
    state = new_state(3, np.array([10], np.int64))
    update(state, files, 0, 5, 1000.0)
    found = columns_of(state, files, 0, 1000.0)
    assert found["dataset_n_files"] == 10
    assert found["position"] == pytest.approx(0.2)
    assert found["pass_0_share"] == pytest.approx(0.1)


def test_the_state_of_a_file_does_not_depend_on_other_datasets() -> None:
    files, reads = world(3)
    own = [read for read in reads if files.dataset[read.file] == files.dataset[0]]
    now_s = reads[-1].at_s
    alone, among = (columns_of(after(files, some), files, 0, now_s) for some in (own, reads))
    assert alone == pytest.approx(among, rel=0, abs=0, nan_ok=True)
