"""The process that makes the operator's pages: it starts anew after it failed, and ends with the service."""

import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import httpx
import pytest
from floods import address_of, ranges_s
from operator_site import planted
from placement_server import loaded, threaded
from waiting import eventually

from features.common.errors import ServiceError
from jobs.operator.overview.page_worker import PageWorker
from prefetch.placement.pages import LastHeartbeat, PageRequest

pytestmark = pytest.mark.long


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[PageWorker]:
    worker = PageWorker(planted(tmp_path, now_s=int(time.time())), patience_s=300)
    yield worker
    worker.close()


def process_of(pages: PageWorker) -> int:
    assert pages._running is not None and pages._running[0].pid is not None
    return pages._running[0].pid


def test_a_process_answers_fails_and_starts_anew(pages: PageWorker) -> None:
    heard = {"xc1": LastHeartbeat(time.time(), True)}
    assert pages._running is None and pages.caches == {"xc1", "xc2"}
    page = pages.page(PageRequest(), heard).decode()
    assert "Region default" in page and "follows the order s3fifo" in page
    first = process_of(pages)
    assert Path(f"/proc/{first}/oom_score_adj").read_text().strip() == "1000"
    ours = os.getpriority(os.PRIO_PROCESS, 0)
    threads = [int(thread.name) for thread in Path(f"/proc/{first}/task").iterdir()]
    assert all(os.getpriority(os.PRIO_PROCESS, thread) > ours for thread in threads)
    assert "Plan of cache xc1" in pages.page(PageRequest("xc1"), heard).decode()
    assert process_of(pages) == first
    os.kill(first, signal.SIGKILL)
    with pytest.raises(ServiceError, match="has ended"):
        pages.page(PageRequest(), heard)
    assert "Region default" in pages.page(PageRequest(), heard).decode()
    second = process_of(pages)
    pages.close()
    assert not Path(f"/proc/{second}").exists()


def test_tables_that_hang_stop_neither_the_service_nor_its_end(pages: PageWorker, tmp_path: Path) -> None:
    with threaded(tmp_path / "placement.db", time.time, operator=pages) as server, server.client() as client:
        assert loaded(client.get, "/operator").status_code == 200
        for part in (tmp_path / "tables" / "contents" / "_commits").iterdir():
            part.unlink()
            os.mkfifo(part)
        pages._patience_s = 3
        with ThreadPoolExecutor() as others:
            page = others.submit(httpx.get, f"{server.url}/operator/caches/xc1?file=/f", timeout=60)
            took_s = [ranges_s(address_of(server.url)) for _ in range(50)]
            server.beat("xc1")
            assert max(took_s) < 1.0 and not page.done()
            reply = page.result()
        assert reply.status_code == 503
        assert re.search("no answer within 3 s: .*\n.*The last page was made at 20.*, .* ago", reply.text)
        pages._patience_s = 60
        began_s = time.monotonic()
        with ThreadPoolExecutor() as others:
            awaited = others.submit(client.get, "/operator/caches/xc1?file=/f", timeout=60)
            assert eventually(lambda: pages._running is not None)
            pages.close()
            assert awaited.result().status_code == 503
        assert time.monotonic() - began_s < 30


def test_a_busy_machine_may_take_longer_to_load_than_the_tables_to_answer(pages: PageWorker) -> None:
    ours, theirs = multiprocessing.Pipe()
    pages._started = lambda: (Mock(), ours)  # type: ignore[method-assign]
    pages._patience_s = 1.0

    def serve() -> None:
        time.sleep(2)
        theirs.send_bytes(b"loaded")
        theirs.recv()
        theirs.send_bytes(b"page")

    with ThreadPoolExecutor() as beside:
        beside.submit(serve)
        assert pages.page(PageRequest(), {}) == b"page"


def test_the_service_imports_no_reader_of_tables_and_no_compiler() -> None:
    code = (
        "import sys\nimport jobs.operator.overview.page_worker, jobs.operator.placement.serve\n"
        "readers = {'jobs.ground.store.tables', 'jobs.loop.plan.plan', 'mlflow', 'jinja2', 'numba'}\n"
        "readers &= set(sys.modules)\n"
        "assert not readers, readers\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
