"""Whether a service on this machine works, by what it answers."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

_TIMEOUT_S = 5.0
_FIGURES_S = 300.0


def answers(port: int, path: str) -> Callable[[], bool]:
    """Whether an HTTP server says 200 there."""

    def look() -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=_TIMEOUT_S) as reply:
                return bool(reply.status == 200)
        except OSError:
            return False

    return look


def airflow_part(port: int, part: str) -> Callable[[], bool]:
    """Whether Airflow's API server says that its scheduler, triggerer or dag_processor lives."""

    def look() -> bool:
        url = f"http://127.0.0.1:{port}/api/v2/monitor/health"
        try:
            with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as reply:
                return bool(json.load(reply)[part]["status"] == "healthy")
        except (OSError, ValueError, KeyError):
            return False

    return look


def takes_datagrams(port: int) -> Callable[[], bool]:
    """Whether somebody listens on the UDP port, by the kernel's table: a probe might take the port itself."""
    return lambda: any(
        int(line.split()[1].rpartition(":")[2], 16) == port
        for table in (Path("/proc/net/udp"), Path("/proc/net/udp6"))
        if table.exists()
        for line in table.read_text().splitlines()[1:]
    )


def writes(file: Path) -> Callable[[], bool]:
    """Whether a service has written its figures to `file` in the last minutes."""

    def look() -> bool:
        try:
            return time.time() - file.stat().st_mtime < _FIGURES_S
        except OSError:
            return False

    return look
