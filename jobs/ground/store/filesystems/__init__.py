"""The file systems of tables: a local folder, HDFS or S3, chosen by the scheme of the root."""

from __future__ import annotations

import urllib.parse
from pathlib import Path

from features.common.errors import ConfigError
from jobs.ground.store.filesystems.base import Store
from jobs.ground.store.filesystems.local import LocalStore

__all__ = ["Store", "store_at"]


def store_at(root: str) -> Store:
    """The store whose names are below `root`: a folder, `hdfs://…` or `s3a://…`. No server is contacted yet.

    Raises ConfigError for another scheme, or for a root that names no host.
    """
    try:
        scheme, _ = (url := urllib.parse.urlsplit(root)).scheme, url.port
    except ValueError as error:
        raise ConfigError("tables.root", f"{root!r}: {error}") from None
    if scheme == "hdfs":
        from jobs.ground.store.filesystems.hdfs import HdfsStore  # noqa: PLC0415  its library is loaded where it is used

        return HdfsStore(root)
    if scheme in ("s3a", "s3"):
        from jobs.ground.store.filesystems.s3 import S3Store  # noqa: PLC0415

        return S3Store(root)
    if not scheme and "::" not in root:
        return LocalStore(Path(root).expanduser().absolute())
    return LocalStore(Path(_local_path(root)))


def _local_path(root: str) -> str:
    import fsspec  # noqa: PLC0415
    from fsspec.implementations.local import LocalFileSystem  # noqa: PLC0415

    try:
        filesystem, path = fsspec.core.url_to_fs(root)
    except (ValueError, ImportError, OSError) as error:
        raise ConfigError("tables.root", f"cannot use {root!r}: {error}") from None
    if not isinstance(filesystem, LocalFileSystem):
        raise ConfigError("tables.root", f"{root!r} is neither a folder nor hdfs:// nor s3a://")
    return str(path)
