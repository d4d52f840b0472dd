"""The process that makes the operator's pages: it starts anew after it failed, and ends with the service."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemons import PATIENCE_S
from operator_site import planted

from features.errors import ServiceError
from jobs.overview.pages import Pages
from prefetch.placement.operator import Asked, Heard


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[Pages]:
    made = Pages(planted(tmp_path, now_s=int(time.time())), patience_s=60)
    yield made
    made.close()


def process_of(pages: Pages) -> int:
    assert pages._process is not None and pages._process.pid is not None
    return pages._process.pid


def test_a_process_answers_fails_and_starts_anew(pages: Pages, tmp_path: Path) -> None:
    heard = {"xc1": Heard(time.time(), True)}
    assert pages._process is None and pages.caches == {"xc1", "xc2"}
    page = pages.page(Asked(), heard).decode()
    assert "Region default" in page and "follows the order s3fifo" in page
    first = process_of(pages)
    assert Path(f"/proc/{first}/oom_score_adj").read_text().strip() == "1000"
    assert "Plan of cache xc1" in pages.page(Asked("xc1"), heard).decode()
    assert process_of(pages) == first
    os.kill(first, signal.SIGKILL)
    with pytest.raises(ServiceError, match="has ended"):
        pages.page(Asked(), heard)
    assert "Region default" in pages.page(Asked(), heard).decode()
    second = process_of(pages)
    os.kill(second, signal.SIGSTOP)
    pages._patience_s = 0.5
    with pytest.raises(ServiceError, match="no answer within"):
        pages.page(Asked(), heard)
    pages.close()
    deadline = time.monotonic() + PATIENCE_S
    while Path(f"/proc/{second}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_an_unexpected_error_leaves_its_traceback_in_the_log_of_the_service(
    pages: Pages, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for path in (tmp_path / "tables" / "contents").rglob("*.parquet"):
        path.write_bytes(path.read_bytes()[:-20] + b"PAR1")
    page = pages.page(Asked(), {}).decode()
    log = capfd.readouterr().err
    assert "it cannot be read (" in page and "Traceback" not in page
    assert "Traceback (most recent call last)" in log and "'cache xc1' cannot be read" in log


def test_the_service_imports_no_reader_of_tables() -> None:
    code = (
        "import sys\nimport jobs.overview.pages, jobs.placement.serve\n"
        "readers = {'jobs.store.tables', 'jobs.plan.plan', 'mlflow', 'jinja2'} & set(sys.modules)\n"
        "assert not readers, readers\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
