"""What a vacuum removes from a table, with which commit, and what it leaves to others."""

import os
import time
from pathlib import Path

import pytest
from rejects_table import data_folders, rejects, rejects_in

from features.common.errors import ConflictError, ServiceError
from features.schema import REJECTS
from jobs.ground.store.filesystems.local import LocalStore
from jobs.ground.store.tables import Tables

DAY = "2026-03-01"
AT_ONCE_S = -180.0
"""A grace by which all is old."""


@pytest.fixture
def tables(root: str) -> Tables:
    return Tables(root)


def test_vacuum_keeps_the_last_commits_and_what_they_name(tables: Tables) -> None:
    for n in range(4):
        tables.replace_arrow(REJECTS, rejects(DAY, n))
    assert tables.vacuum(REJECTS, keep=2, grace_s=3600) == 0
    assert tables.vacuum(REJECTS, keep=2, grace_s=AT_ONCE_S) == 2
    assert sorted(rejects_in(tables).names("_commits")) == ["000000000003.json", "000000000004.json"]
    assert tables.read_arrow(REJECTS)["n_rows"].to_pylist() == [3]
    assert tables.replace_arrow(REJECTS, rejects(DAY, 9)).number == 5


@pytest.mark.parametrize("fault", [None, PermissionError("foreign folder"), ServiceError("HDFS is down")])
def test_what_was_superseded_days_ago_goes_with_a_later_commit(
    local: Tables, monkeypatch: pytest.MonkeyPatch, fault: Exception | None
) -> None:
    days_ago_s = time.time() - 3 * 86400
    for n in range(12):
        local.replace_arrow(REJECTS, rejects(DAY, n))
    store = rejects_in(local)
    store.make_folder("data-before-the-update")
    for path in Path(store.root).rglob("*"):
        os.utime(path, (days_ago_s, days_ago_s))
    # A clock was wrong for a day.
    os.utime(Path(store.root, "_commits/000000000005.json"), (days_ago_s, time.time() + 1e7))

    def remove(_store: LocalStore, _name: str) -> None:
        raise fault or AssertionError

    if fault:
        monkeypatch.setattr(LocalStore, "remove", remove)
    for n in range(12, 22):
        assert local.replace_arrow(REJECTS, rejects(DAY, n)).number == n + 1
    names = store.names("_commits")
    # The twelfth was superseded now, whatever its own date is.
    assert min(names) == f"{1 if fault else 12:012d}.json"
    assert len(data_folders(local)) - 1 == len(names) == (22 if fault else 11)
    assert "data-before-the-update" in data_folders(local), "it is an operator's"
    assert local.read_arrow(REJECTS)["n_rows"].to_pylist() == [21]


def test_a_writer_that_paused_for_days_takes_no_number_that_was_vacuumed(
    local: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = local.replace_arrow(REJECTS, rejects(DAY, 1))
    put = LocalStore.put_if_absent

    def put_late(store: LocalStore, name: str, content: bytes) -> bool:
        monkeypatch.undo()
        for n in range(5):
            local.replace_arrow(REJECTS, rejects(DAY, 10 + n))
        local.vacuum(REJECTS, keep=1, grace_s=AT_ONCE_S)
        return put(store, name, content)

    monkeypatch.setattr(LocalStore, "put_if_absent", put_late)
    with pytest.raises(ConflictError, match=DAY):
        local.replace_arrow(REJECTS, rejects(DAY, 2), base=base)
    assert rejects_in(local).names("_commits") == ["000000000006.json"]
    assert local.read_arrow(REJECTS)["n_rows"].to_pylist() == [14]


def test_a_clock_that_is_ahead_vacuums_nothing_new(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(3):
        tables.replace_arrow(REJECTS, rejects(DAY, n))
    now_s = time.time()
    monkeypatch.setattr(time, "time", lambda: now_s + 2 * 86400)
    assert tables.vacuum(REJECTS, keep=1, grace_s=86400) == 0
    assert len(rejects_in(tables).names("_commits")) == 3


def test_a_vacuum_writes_nothing_and_trusts_no_date_of_the_future(
    local: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert local.vacuum(REJECTS) == 0
    assert rejects_in(local).names() == []
    for n in range(3):
        local.replace_arrow(REJECTS, rejects(DAY, n))
    monkeypatch.setattr(LocalStore, "put_if_absent", None)  # as on a full disk
    assert local.vacuum(REJECTS, keep=1, grace_s=AT_ONCE_S) == 2
    store, ahead_s = rejects_in(local), time.time() + 7 * 86400
    os.utime(Path(store.root, "_commits", "000000000003.json"), (ahead_s, ahead_s))
    store.make_folder("data-new")
    assert local.vacuum(REJECTS, grace_s=86400) == 0, "another process writes there"


@pytest.mark.parametrize("listed", ["_commits", ""])
def test_what_another_process_vacuums_meanwhile_is_no_error(
    local: Tables, monkeypatch: pytest.MonkeyPatch, listed: str
) -> None:
    for n in range(6):
        local.replace_arrow(REJECTS, rejects(DAY, n))
    names = LocalStore.names

    def names_early(store: LocalStore, folder: str = "") -> list[str]:
        folder_names = names(store, folder)
        if folder == listed:
            monkeypatch.undo()
            assert local.vacuum(REJECTS, keep=2, grace_s=AT_ONCE_S) == 4
        return folder_names

    monkeypatch.setattr(LocalStore, "names", names_early)
    local.vacuum(REJECTS, keep=2, grace_s=AT_ONCE_S)
    assert len(data_folders(local)) == len(rejects_in(local).names("_commits")) == 2
    assert local.read_arrow(REJECTS)["n_rows"].to_pylist() == [5]
