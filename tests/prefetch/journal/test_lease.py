"""The lease of a cache: one holder at a time, and nothing is written by one that lost it."""

import concurrent.futures
import dataclasses
import os
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest
from journals import item, states

from features.common.errors import ConflictError, ServiceError
from prefetch.actions import Action, ItemState
from prefetch.journal import lease as lease_module
from prefetch.journal.journal import Journal, Receipt
from prefetch.journal.lease import BEAT_S, LEASE_S, Lease

DONE = Receipt(ItemState.DONE)


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pushers run on another machine: nobody here knows whether they are dead."""
    monkeypatch.setattr(lease_module, "new_owner", lambda: "far/boot/1|7|5|x")


def test_of_pushers_at_once_one_takes_the_lease(url: str) -> None:
    journals, plan = [Journal(url) for _ in range(4)], [item(number) for number in range(200)]

    def take(journal: Journal) -> Lease | None:
        with suppress(ConflictError):
            return journal.leases.take("xc", now_s=1000)
        return None

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        # All four make the tables and record the plan at once.
        assert sum(pool.map(lambda each: each.plans.record_plan(plan, now_s=1000), journals)) == 200
        (first,) = [lease for lease in pool.map(take, journals) if lease is not None]
    assert journals[0].leases.take("other", now_s=1000).fence == first.fence == 1
    for each in journals:
        each.close()


@pytest.mark.usefixtures("elsewhere")
def test_a_second_pusher_is_told_who_holds_it_and_until_when(journal: Journal) -> None:
    first = journal.leases.take("xc", now_s=1000)
    assert journal.leases.holder("xc", now_s=1001) == "process 7 on far, until 1970-01-01T00:21:40Z"
    with pytest.raises(ConflictError, match=r"process 7 on far .* until 1970-01-01T00:21:40Z"):
        journal.leases.take("xc", now_s=999 + LEASE_S)
    first.renew(now_s=1200)
    with pytest.raises(ConflictError):
        journal.leases.take("xc", now_s=1199 + LEASE_S)
    first.release(now_s=1300)
    assert journal.leases.holder("xc", now_s=1300) is None
    assert journal.leases.take("xc", now_s=1300).fence == 2


def test_it_is_renewed_in_time(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    lease, clock = journal.leases.take("xc", now_s=1000), time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: clock + BEAT_S / 2)
    lease.keep(now_s=2000)
    assert journal.leases.holder("xc", now_s=1001 + LEASE_S) is None
    monkeypatch.setattr(time, "monotonic", lambda: clock + 2 * BEAT_S)
    lease.keep(now_s=2000)
    assert journal.leases.holder("xc", now_s=1999 + LEASE_S) is not None


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize(
    "write",
    [
        lambda lease: lease.begin(Action.PREFETCH, 1, now_s=2000),
        lambda lease: lease.finish({"1000-prefetch-1": DONE}, now_s=2000),
        lambda lease: lease.give_back(["1000-prefetch-1"], now_s=2000),
        lambda lease: lease.renewed({"1000-prefetch-1": 2000.0}),
        lambda lease: lease.lose_pin("1000-prefetch-1", "gone", now_s=2000),
        lambda lease: lease.renew(now_s=2000),
    ],
)
def test_who_lost_it_writes_nothing(journal: Journal, write: Callable[[Lease], object]) -> None:
    journal.plans.record_plan([item(1), item(2)], now_s=1000)
    slow = journal.leases.take("xc", now_s=1000)
    slow.begin(Action.PREFETCH, 1, now_s=1001)
    quick = journal.leases.take("xc", now_s=1000 + LEASE_S)
    quick.begin(Action.PREFETCH, 1, now_s=1001 + LEASE_S)
    before = list(journal.reports.receipts())
    with pytest.raises(ConflictError, match="lost its lease to process 7 on far"):
        write(slow)
    slow.release(now_s=2000)
    assert list(journal.reports.receipts()) == before
    assert journal.leases.holder("xc", now_s=1001 + LEASE_S) is not None
    quick.finish({"1000-prefetch-2": DONE}, now_s=2000)
    assert states(journal) == {"planned": 1, "done": 1}


def test_what_a_dead_pusher_left_is_planned_again_at_once(journal: Journal, url: str) -> None:
    journal.plans.record_plan([item(number) for number in range(4)], now_s=1000)
    script = (
        "import sys; from prefetch.actions import Action; from prefetch.journal.journal import Journal; "
        "Journal(sys.argv[1]).leases.take('xc', now_s=1000).begin(Action.PREFETCH, 2, now_s=1001)"
    )
    subprocess.run([sys.executable, "-c", script, url], check=True)
    assert journal.plans.cancel("xc", now_s=1001) == (2, 2)
    assert states(journal) == {"cancelled": 2, "cancelling": 2}
    assert journal.leases.take("xc", now_s=1002).fence == 2
    assert states(journal) == {"cancelled": 4}


@pytest.mark.usefixtures("elsewhere")
def test_a_lease_of_a_wrong_clock_keeps_nobody_waiting(journal: Journal) -> None:
    journal.leases.take("xc", now_s=1000 + 400 * 86400)
    assert journal.leases.holder("xc", now_s=1000) is None
    assert journal.leases.take("xc", now_s=1000).fence == 2


@pytest.mark.parametrize(
    "damage",
    [
        *("holder = 'x'", "holder = 'far/boot/1|pid|5|x'", "holder = CAST(holder AS BLOB)"),
        *("until_s = 'x'", "fence = 'x'", "fence = 9223372036854775807"),
    ],
)
def test_a_lease_that_no_journal_holds_is_a_damage_that_is_said(tmp_path: Path, damage: str) -> None:
    with closing(Journal(f"{tmp_path}/journal.db")) as journal:
        held = journal.leases.take("xc", now_s=1000)
        with closing(sqlite3.connect(tmp_path / "journal.db")) as connection, connection:
            connection.execute(f"UPDATE push_leases SET {damage}")
        for use in (journal.leases.holder, journal.leases.take):
            with pytest.raises(ServiceError, match="the push journal is damaged"):
                use("xc", now_s=1001)
        if damage.startswith("fence"):
            with pytest.raises(ServiceError, match="the push journal is damaged"):
                held.renew(now_s=1001)


def test_pushers_and_cancels_do_not_wait_for_each_other(url: str) -> None:
    journals = [Journal(url) for _ in range(3)]
    journals[0].plans.record_plan([item(number) for number in range(200)], now_s=1000)

    def push(number: int) -> None:
        for turn in range(40):
            with suppress(ConflictError):
                # Each takes it from the other, as if that one were silent.
                lease = journals[number].leases.take("xc", now_s=1000 + (2 * turn + number) * LEASE_S)
                begun = [each.item_id for each in lease.begin(Action.PREFETCH, 8, now_s=1001)]
                lease.finish(dict.fromkeys(begun[::-1], Receipt(ItemState.PLANNED)), now_s=1002)

    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        pushed = [pool.submit(push, number) for number in range(2)]
        cancelled = pool.submit(
            lambda: sum(sum(journals[2].plans.cancel("xc", now_s=1002)) for _ in range(40))
        )
        assert all(future.result() is None for future in pushed) and cancelled.result() == 200
    assert states(journals[0]).keys() <= {"cancelled", "cancelling"}
    for each in journals:
        each.close()


@dataclasses.dataclass(frozen=True)
class Host:
    """What a process sees of its host."""

    name: str
    boot_id: str
    pid: int


def on(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process seem to run there; the space of process ids is the first one of every host."""
    read_text, stat = Path.read_text, Path.stat
    space = stat(Path("/proc/self/ns/pid"))

    def read(path: Path, *arguments: object, **named: object) -> str:
        if path == Path("/proc/sys/kernel/random/boot_id"):
            return f"{host.boot_id}\n"
        return read_text(path)

    monkeypatch.setattr(socket, "gethostname", lambda: host.name)
    monkeypatch.setattr(Path, "read_text", read)
    monkeypatch.setattr(Path, "stat", lambda path, **how: space if "/ns/" in str(path) else stat(path, **how))
    monkeypatch.setattr(os, "getpid", lambda: host.pid)


def test_a_run_on_another_host_of_the_same_name_is_not_called_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as there:
        on(Host("node1", "aaaa", os.getpid()), there)
        # Its process id belongs to another process here.
        run = lease_module.new_owner().split("|")
        run[2] = "1"
    name = "|".join(run)
    with monkeypatch.context() as here:
        on(Host("node1", "bbbb", os.getpid()), here)
        assert not lease_module.is_dead(name)
    with monkeypatch.context() as again:
        on(Host("node1", "aaaa", os.getpid()), again)
        assert lease_module.is_dead(name)
