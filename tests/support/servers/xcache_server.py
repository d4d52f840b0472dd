"""A real XCache and its origin on loopback, and the g-stream that they send."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from daemons import open_folder

from jobs.local_site.local.xrootd import Loopback, loopback
from prefetch.target import CacheTarget
from prefetch.xcache.receiver import collecting


def has_ended(target: CacheTarget, name: str) -> bool:
    """Whether a cache has noted the end of the last use of a file; a busy one does so up to 30 s late."""
    held = target.confirm(name).held
    return held is not None and held.last_detach_s is not None and not held.is_open


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
