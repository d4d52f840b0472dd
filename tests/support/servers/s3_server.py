"""A real S3 server on this machine: moto's, in memory, with one bucket."""

import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from daemons import free_ports, start, up

BUCKET = "tables"


@contextmanager
def running(folder: Path) -> Iterator[str]:
    """The endpoint's URL; keeps its log in `folder`, and ends with the block."""
    (port,) = free_ports(1)
    endpoint = f"http://127.0.0.1:{port}"
    server = start([sys.executable, "-m", "moto.server", "-p", str(port)], folder / "s3.log")
    with up(lambda: _has_bucket(endpoint), folder, server):
        yield endpoint


def _has_bucket(endpoint: str) -> bool:
    request = urllib.request.Request(f"{endpoint}/{BUCKET}", method="PUT")
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return bool(answer.status == 200)
    except urllib.error.URLError:
        return False
