"""A real XCache and its origin on loopback, and the g-stream that they send."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from daemons import NoServer

from features.common.errors import ServiceError
from jobs.local_site.local.xrootd import Loopback, loopback
from prefetch.xcache.receiver import Collector


@contextmanager
def running(*, files_limit: tuple[int, int, int] | None = None) -> Iterator[tuple[Loopback, Path]]:
    """The servers, and the capture of what the cache reports. `files_limit`: see `loopback`."""
    # The user that XRootD runs as must reach its folder, and a socket's path is short.
    with tempfile.TemporaryDirectory(prefix="xc-") as folder:
        Path(folder).chmod(0o755)
        base, capture = Path(folder) / "lb", Path(folder) / "gstream.txt"
        try:
            with (
                Collector(capture) as collector,
                loopback(
                    base, files_limit=files_limit, gstream_port=collector.port, reports_opens=True
                ) as site,
            ):
                yield site, capture
        except ServiceError as error:
            raise NoServer(f"{error}; see `make test`") from None
        assert site.cache.pid is None and site.origin.pid is None
