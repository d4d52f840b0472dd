"""What tests of every room share: one local Spark, one HDFS, and the folder of real samples and data."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cases import IS_THOROUGH
from hypothesis import settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rucio_server import RucioServer


LEFT_OUT = pytest.StashKey[int]()
MOST_AGAIN = 5
"""So many tests against real servers may need a second try in one run; more of them fail the run."""

# The same code meets the same random cases in each `make test`; `make verify` draws new ones.
settings.register_profile("cachecast", derandomize=not IS_THOROUGH, database=None, deadline=None)
settings.load_profile("cachecast")


# The tests and what they import stay until the end: nothing of them is looked through for what can go.
gc.disable()

# Started in the background by a shell, this process and its children would ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    """Commands that run in this process set its umask: the next test begins with the one before."""
    before = os.umask(0o022)
    os.umask(before)
    yield
    os.umask(before)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One Spark session for the whole run: the smallest there is, on two cores."""
    from jobs.ground.settings.tree import SparkSettings  # noqa: PLC0415
    from jobs.ground.spark.session import spark_session  # noqa: PLC0415  rooms without Spark must not load it

    settings = SparkSettings(
        master="local[2]",
        driver_memory="2g",
        shuffle_partitions=2,
        conf={
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
        },
    )
    session = spark_session(settings)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a real HDFS of this run: a NameNode and a DataNode."""
    from daemons import needed  # noqa: PLC0415  only tests that need it
    from hdfs_server import running  # noqa: PLC0415

    yield from needed("a real HDFS", running(tmp_path_factory.mktemp("hdfs")))


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a bucket of a real S3 server of this run, whose keys and endpoint are in the environment."""
    from daemons import needed  # noqa: PLC0415  only tests that need it
    from s3_server import BUCKET, running  # noqa: PLC0415

    for endpoint in needed("a real S3 server", running(tmp_path_factory.mktemp("s3"))):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("AWS_ENDPOINT_URL", endpoint)
            patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
            for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
                patch.setenv(name, "of-the-tests")
            yield f"s3a://{BUCKET}"


@pytest.fixture(scope="session")
def rucio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RucioServer]:
    """A real Rucio server of this run, empty but for what tests put there in scopes and RSEs of their own."""
    from daemons import needed  # noqa: PLC0415  only tests that need it
    from rucio_server import running  # noqa: PLC0415

    yield from needed("a real Rucio server", running(tmp_path_factory.mktemp("rucio")))


@pytest.fixture
def folder_of_all() -> Iterator[Path]:
    """A folder that every account may enter, with a short path; pytest's own are of one account."""
    from daemons import open_folder  # noqa: PLC0415  only tests that need it

    with open_folder() as folder:
        yield folder


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real samples that the repository carries; its README names sources and licences."""
    return Path(__file__).parent / "data"


SHARED = Path(os.environ.get("CACHECAST_SHARED") or Path(__file__).parents[2] / "shared").absolute()


@pytest.fixture(scope="session")
def shared() -> Callable[[str], Path]:
    """Path of a file of the data that cannot be carried: `shared("data/x.csv")`; fails if missing."""

    def path_of(name: str) -> Path:
        path = SHARED / name
        if not path.exists():
            pytest.fail(f"{path} is missing: these tests need the folder `shared` beside the checkout")
        return path

    return path_of


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None]:
    """Mark the tests that take `shared` as `real_data`; leave them out where there is no such folder.

    Those of `make verify` alone are left to it.

    Files whose tests wait for a cache are spread among those that compute, so that some compute while others
    wait; in each kind the largest come first, so that the processes end together.
    """
    if not IS_THOROUGH:
        _leave_out(config, items, [item for item in items if item.get_closest_marker("verify")])
    for item in items:
        if "shared" in getattr(item, "fixturenames", ()):
            item.add_marker("real_data")
        if item.get_closest_marker("service"):
            item.add_marker(pytest.mark.flaky(reruns=1))
    waiting, serving, computing = (_files(items, kind) for kind in ("waits", "serves", "computes"))
    files = sorted([*_placed(waiting), *_placed([*serving, *computing])], key=lambda placed: placed[0])
    items[:] = [item for _, file in files for item in file]
    yield
    if not SHARED.is_dir():
        left_out = [item for item in items if item.get_closest_marker("real_data")]
        _leave_out(config, items, left_out)
        config.stash[LEFT_OUT] = len(left_out)
        if (sent := getattr(config, "workeroutput", None)) is not None:
            sent["left_out"] = len(left_out)


def _leave_out(config: pytest.Config, items: list[pytest.Item], left_out: list[pytest.Item]) -> None:
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)


def _kind(item: pytest.Item) -> str:
    """Tests of real caches wait most of the time; those of other servers take longer than those of none."""
    if item.get_closest_marker("service") is None:
        return "computes"
    return "waits" if item.get_closest_marker("xrootd") else "serves"


def _files(items: Sequence[pytest.Item], kind: str) -> list[list[pytest.Item]]:
    """The tests of a kind by file, first long ones and those that share a server, then those with most."""
    files: dict[Path, list[pytest.Item]] = {}
    for item in (each for each in items if _kind(each) == kind):
        files.setdefault(item.path, []).append(item)
    return sorted(files.values(), key=lambda of: (any(map(_is_long, of)), len(of)), reverse=True)


def _is_long(item: pytest.Item) -> bool:
    return (
        item.get_closest_marker("long") is not None or _together(item.nodeid.partition("::")[0]) is not None
    )


def _placed(files: Sequence[list[pytest.Item]]) -> Iterator[tuple[float, list[pytest.Item]]]:
    """Each file with the share of `files` that come before it."""
    return ((n / len(files), file) for n, file in enumerate(files))


_SERVED, _PULLED, _PUSHED = "tests/services/", "tests/jobs/loop/ingest/", "tests/prefetch/"
TOGETHER = {
    "a Rucio": [f"{_SERVED}test_rucio_{what}" for what in ("placement", "queue", "server", "sync")],
    "an MLflow": [
        f"{_SERVED}mlflow/test_{what}" for what in ("compared", "delivery", "hostile", "poisoned", "training")
    ],
    "a PostgreSQL": [
        *(f"{_PUSHED}journal/test_{what}" for what in ("journal", "lease", "moments", "plans")),
        f"{_PUSHED}push/test_crash",
    ],
    "an XCache": [f"{_PUSHED}test_target_contract", f"{_PUSHED}push/test_push"],
    "HDFS and S3": [
        *(f"{_SERVED}test_hdfs", f"{_SERVED}test_cluster", f"{_PULLED}test_pull_remote"),
        *(f"tests/jobs/ground/store/test_{what}" for what in ("tables", "vacuum", "s3_commits")),
    ],
    "Spark": [
        *(
            f"{_PULLED}test_{what}"
            for what in ("pull", "pull_inputs", "pull_links", "incremental", "engines")
        ),
        *(f"{_PULLED}test_{what}" for what in ("matrix", "source_packages", "worker_jobs")),
        *("tests/jobs/loop/train/test_engines", "tests/models/serving/test_scoring"),
    ],
}
"""Files whose tests share what takes long to start: one process has it, with `--dist loadfile`."""


def _together(file: str) -> str | None:
    """What a file of tests, by its path in the repository, shares with others."""
    return next((what for what, of in TOGETHER.items() if file.removesuffix(".py") in of), None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Files stay in one process, and those in `TOGETHER` in the same."""
    from xdist.scheduler import LoadFileScheduling  # noqa: PLC0415  where tests run in several processes

    files = (f"{file}.py" for shared in TOGETHER.values() for file in shared)
    if missing := [file for file in files if not (config.rootpath / file).exists()]:
        raise pytest.UsageError(f"TOGETHER names files that are gone: {missing}")

    class Together(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file = str(super()._split_scope(nodeid))
            return _together(file) or file

    return Together(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """With several processes each of them collects all tests, so each leaves out the same number."""
    node.config.stash[LEFT_OUT] = getattr(node, "workeroutput", {}).get("left_out", 0)


def pytest_collection_finish() -> None:
    """From here on tests leave what can go."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run in which many tests passed only when they were tried again."""
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None and len(terminal.stats.get("rerun", ())) > MOST_AGAIN:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what passed only at its second try, what was left out, and which versions of XRootD were tested."""
    import xrootd_versions  # noqa: PLC0415  it looks for programs

    reports = [report for reports in terminalreporter.stats.values() for report in reports]
    if any("xrootd" in getattr(report, "keywords", ()) for report in reports):
        terminalreporter.write_line(xrootd_versions.summary())
    if again := terminalreporter.stats.get("rerun", ()):
        terminalreporter.write_line(
            f"{len(again)} tests against servers were tried again, {MOST_AGAIN} may be:"
        )
        for report in again:
            terminalreporter.write_line(f"  {report.nodeid}: {str(report.longrepr).splitlines()[-1]}")
    if n_tests := config.stash.get(LEFT_OUT, 0):
        terminalreporter.write_line(
            f"{n_tests} tests on real data are left out: its licences keep it out of the repository, "
            f"and there is no folder {SHARED}"
        )
