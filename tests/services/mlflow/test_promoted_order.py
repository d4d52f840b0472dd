"""A steward at work takes up the order that is promoted, from a real MLflow."""

import errno
import multiprocessing
import os
import shutil
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from folder_site import folder_site
from ladders import rates_of
from planted_region import (
    DAY,
    FIRST,
    MLFLOW_WARNINGS,
    SECOND,
    TRAIN_UNTIL_S,
    Mlflow,
    bundle_of,
    registry,
    serve,
)
from waiting import STOPPED_AT_ONCE, eventually

from features.common.errors import ModelError
from features.spec import COLUMNS
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables
from jobs.loop.steward import promoted, steward
from jobs.loop.steward.promoted import Promoted
from models.serving import bundle_files
from models.serving.bundle_files import bundle_digest, keep_files, kept_order
from models.serving.versions import ModelVersion
from prefetch.journal.journal import Journal
from prefetch.steward.figures import StewardFigures
from replay.policies.learned import Order

pytestmark = [pytest.mark.long, STOPPED_AT_ONCE, *MLFLOW_WARNINGS]
WITHIN_S = 300.0
FRESH_S = TRAIN_UNTIL_S + 35.0 * DAY
"""An order serves until then."""
ROWS = np.random.default_rng(1).random((9, len(COLUMNS))).astype(np.float32)


class Clock:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now_s = FRESH_S

    def __call__(self) -> float:
        return self.now_s


def site(folder: Path, at: Mlflow, policy: str = "auto") -> Settings:
    (folder / "origin").mkdir()
    more = (
        f'steward = true\n[region]\nname = "emea"\n[mlflow]\nuri = "{at.uri}"\n'
        f'artifacts = "{at.artifacts}"\nexperiment = "cachecast-test"\n'
        f'[steward]\nstate = "{folder}/s"\npolicy = "{policy}"\n'
    )
    journal = Journal(f"{folder}/journal.db")
    journal.make()
    journal.close()
    return Settings.load(folder_site(folder, more, cache="xc1", capacity="100MB"), env={})


def spoil(at: Mlflow, version: str) -> None:
    """Change a file of a version's order."""
    trees = bundle_of(at, version) / "order" / "90m.lgb"
    trees.write_text(trees.read_text().replace("shrinkage=1", "shrinkage=2"))


def has_alarm(figures: StewardFigures, words: str) -> bool:
    """Whether its alarm about the order has these words."""
    return words in figures.alarms.get("steward-order", "")


def refresh_until(served: Promoted, is_so: Callable[[], bool]) -> None:
    def is_so_now() -> bool:
        served.refresh()
        return is_so()

    assert is_so() or eventually(is_so_now, WITHIN_S), served.fault


@contextmanager
def operated(operate: Callable[[], None]) -> Iterator[None]:
    """In another thread `operate`, which ends the daemon of the block, unless that has failed before."""
    has_ended = threading.Event()

    def operate_and_stop() -> None:
        try:
            operate()
        finally:
            if not has_ended.is_set():
                os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=operate_and_stop)
    thread.start()
    try:
        yield
    finally:
        has_ended.set()
        thread.join()


@pytest.fixture
def loads_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look-ups are forks of one process that has loaded what they need, which takes seconds each."""
    context = multiprocessing.get_context("forkserver")
    stores = ("mlflow.store.tracking.sqlalchemy_store", "mlflow.store.model_registry.sqlalchemy_store")
    context.set_forkserver_preload(["jobs.loop.steward.promoted", "models.serving.registry", *stores])
    monkeypatch.setattr(multiprocessing, "get_context", lambda _: context)


@pytest.mark.usefixtures("loads_once")
def test_a_steward_follows_promotions_without_a_restart(
    own: Mlflow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(promoted, "LOOK_UP_EVERY_S", 0.1)
    monkeypatch.setattr(promoted, "BEGINS_WITHIN_S", WITHIN_S)
    monkeypatch.setattr(steward, "REPORT_EVERY_S", 0.1)
    settings, at, clock = site(tmp_path, own), registry(own), Clock()
    store = Tables(settings.tables.root)
    published, missed = list[StewardFigures](), list[str]()

    def until(what: str, is_so: Callable[[StewardFigures], bool]) -> None:
        if not eventually(lambda: published and is_so(published[-1]), WITHIN_S):
            missed.append(what)

    def operate() -> None:
        until("none yet", lambda now: now.version is None and not now.alarms)
        serve(store, own, 1, steward=FIRST)
        until("the first", lambda now: now.version == FIRST and now.version_since_s == FRESH_S)
        clock.now_s -= 60
        serve(store, own, 2, steward=SECOND)
        until("the second", lambda now: now.version == SECOND and now.version_since_s == FRESH_S - 60)
        at.point("steward", FIRST)
        until("moved", lambda now: now.version == SECOND and has_alarm(now, f"points to {FIRST}"))
        spoil(own, FIRST)
        serve(store, own, 3, steward=FIRST)
        until("an alarm", lambda now: f"order of {SECOND} serves on" in now.alarms.get("steward-order", ""))
        assert published[-1].version == SECOND
        serve(store, own, 4, steward=SECOND)
        until("no alarm", lambda now: now.version == SECOND and "steward-order" not in now.alarms)
        serve(store, own, 5)
        until("taken back", lambda now: now.version is None and "steward-order" not in now.alarms)
        at.point("steward", SECOND)
        until("not on record", lambda now: now.version is None and has_alarm(now, "names none"))
        serve(store, own, 6, steward=SECOND)
        until("again", lambda now: now.version == SECOND)
        clock.now_s = FRESH_S + 1
        until("too old", lambda now: now.version is None and "max_age" in now.alarms.get("steward-order", ""))

    lines = list[str]()
    with operated(operate):
        steward.run(settings, cache="xc1", log=lines.append, figures=published.append, now_s=clock)
    assert not missed, "\n".join(lines[:6])
    assert sum("begins anew" in line for line in lines) == 5


@pytest.mark.usefixtures("loads_once")
def test_the_first_look_up_decides_whether_learned_can_begin(own: Mlflow, tmp_path: Path) -> None:
    settings = site(tmp_path, own, "learned")
    cache = settings.cache("xc1")
    serve(Tables(settings.tables.root), own, 1, steward=SECOND)
    order = Promoted(settings, cache, now_s=lambda: FRESH_S)
    served = order.first()
    assert served is not None and (served.version, order.fault) == (SECOND, None)
    order = Promoted(settings, cache, now_s=lambda: FRESH_S + 1)
    assert order.first() is None and order.fault is not None and "train, evaluate" in order.fault
    shutil.rmtree(settings.steward.copies("xc1"))
    spoil(own, SECOND)
    with pytest.raises(ModelError, match="not those that were trained"):
        Promoted(settings, cache, now_s=lambda: FRESH_S).first()


@pytest.mark.usefixtures("loads_once")
def test_a_copy_of_the_promoted_order_lets_a_steward_begin_whatever_mlflow_does(
    own: Mlflow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = site(tmp_path, own, "learned")
    store, copies = Tables(settings.tables.root), settings.steward.copies("xc1")
    serve(store, own, 1, steward=SECOND)

    def begun(at: Settings) -> Promoted:
        return Promoted(at, settings.cache("xc1"), now_s=lambda: FRESH_S)

    other = begun(settings).first()
    (copy,) = copies.iterdir()
    monkeypatch.setattr(promoted, "BEGINS_WITHIN_S", 3.0)
    monkeypatch.setattr(promoted, "LOOK_UP_EVERY_S", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        uri = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        hung = settings.model_copy(update={"mlflow": settings.mlflow.model_copy(update={"uri": uri})})
        order = begun(hung)
        served = order.first()
        assert served is not None and other is not None
        assert (served.version, served.digest, order.fault) == (SECOND, copy.name, None)
        np.testing.assert_array_equal(rates_of(served.order.models, ROWS), rates_of(other.order.models, ROWS))
        refresh_until(order, lambda: order.fault is not None)  # it asks MLflow at once
        assert order.serves is served and "serves on" in str(order.fault)
        serve(store, own, 2)  # taken back, while MLflow hangs
        refresh_until(order, lambda: order.serves is None)
    serve(store, own, 3, steward=SECOND)
    trees = copy / "order" / "90m.lgb"
    before = trees.read_text()
    trees.write_text(before.replace("shrinkage=1", "shrinkage=2"))
    assert begun(settings).first() is not None and trees.read_text() == before  # mended from MLflow
    serve(store, own, 4)
    order = begun(hung)
    assert (order.first(), order.fault) == (None, None)


def test_a_full_disk_leaves_the_copy_as_it_was(
    two_versions: Mlflow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [bundle_of(two_versions, FIRST), tmp_path / "newer"]
    copies = tmp_path / "copies"
    shutil.copytree(files[0], files[1])
    (files[1] / "bundle.json").write_text((files[0] / "bundle.json").read_text() + " ")
    first, second = (ModelVersion(f"cachecast-emea/{i}", bundle_digest(path)) for i, path in enumerate(files))
    keep_files(files[0], copies, first)
    (copies / "note.txt").touch()

    def fails(source: Path, to: Path) -> None:
        to.mkdir()
        (to / "bundle.json").write_text("{")
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(shutil, "copytree", fails)
        with pytest.raises(OSError, match="No space"):
            keep_files(files[1], copies, second)
    assert {path.name for path in copies.iterdir()} == {first.digest, "note.txt"}
    assert kept_order(copies, second) is None
    served = kept_order(copies, first)
    assert served is not None and served.version == first.version
    keep_files(files[1], copies, second)
    assert {path.name for path in copies.iterdir()} == {second.digest, "note.txt"}
    assert kept_order(copies, second) is not None
    trees = copies / str(second.digest) / "order" / "90m.lgb"
    trees.unlink()
    os.mkfifo(trees)
    assert kept_order(copies, second) is None


def test_a_copy_that_changes_after_its_check_is_not_followed(
    two_versions: Mlflow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, copies = bundle_of(two_versions, FIRST), tmp_path / "copies"
    first = ModelVersion(FIRST, bundle_digest(folder))
    keep_files(folder, copies, first)
    trees = copies / str(first.digest) / "order" / "90m.lgb"

    def checks(place: Path) -> str:
        digest = bundle_digest(place)
        trees.write_text("tree")
        return digest

    monkeypatch.setattr(bundle_files, "bundle_digest", checks)
    served = kept_order(copies, first)
    assert served is not None, "what was checked was read"
    monkeypatch.undo()
    assert kept_order(copies, first) is None


def test_a_look_up_that_hangs_before_it_asks_is_late_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = site(tmp_path, Mlflow(uri="http://127.0.0.1:9"))
    monkeypatch.setattr(promoted, "_LOADS_WITHIN_S", 0.0)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before, others = set(tmp_path.iterdir()), multiprocessing.active_children()
    look_up = promoted.LookUp(promoted.Question(settings, settings.cache("xc1"), None, is_first=True))
    (process,) = set(multiprocessing.active_children()) - set(others)
    os.kill(int(process.pid or 0), signal.SIGSTOP)
    (scratch,) = set(tmp_path.iterdir()) - before
    (scratch / "half").touch()
    look_up.wait(0.5)
    assert not look_up.is_done() and look_up.is_late(0.5)
    look_up.end()
    assert set(tmp_path.iterdir()) == before


class OfLonger:
    """An order with one field more, as another cachecast may make it."""

    def __reduce__(self) -> tuple[type[Order], tuple[float, None, float]]:
        return Order, (0.0, None, 1.0)


def test_an_answer_of_another_cachecast_is_an_error_and_ends_no_steward(own: Mlflow, tmp_path: Path) -> None:
    settings = site(tmp_path, own)
    look_up = promoted.LookUp(promoted.Question(settings, settings.cache("xc1"), None, is_first=True))
    look_up._answers, theirs = multiprocessing.Pipe(duplex=False)
    theirs.send(OfLonger())
    look_up.wait(10.0)
    assert look_up.is_done() and "restart the steward" in str(look_up.error)


def test_a_policy_that_is_not_learned_asks_for_no_order(own: Mlflow, tmp_path: Path) -> None:
    settings = site(tmp_path, Mlflow(uri="http://127.0.0.1:9"), "s3fifo")
    order = Promoted(settings, settings.cache("xc1"))
    order.refresh()
    assert (order.serves, order.fault) == (None, None)
