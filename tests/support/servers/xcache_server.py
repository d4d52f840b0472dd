"""A real XCache and its origin on loopback, and the g-stream that they send."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from daemons import open_folder

from jobs.local_site.local.xrootd import Loopback, loopback
from prefetch.xcache.receiver import collecting


@contextmanager
def running(*, files_limit: tuple[int, int, int] | None = None) -> Iterator[tuple[Loopback, Path]]:
    """The servers, and the capture of what the cache reports. `files_limit`: see `loopback`."""
    with open_folder() as folder:
        base, capture = folder / "lb", folder / "gstream.txt"
        with (
            collecting(capture) as port,
            loopback(base, files_limit=files_limit, gstream_port=port, reports_opens=True) as site,
        ):
            yield site, capture
        assert site.cache.pid is None and site.origin.pid is None
