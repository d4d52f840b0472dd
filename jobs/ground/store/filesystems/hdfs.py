"""Tables on HDFS. Spark has its own client; everything else uses hdfs-native, without Java."""

from __future__ import annotations

import functools
import os
import posixpath
import urllib.parse
import uuid
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from hdfs_native.fsspec import HdfsFileSystem

from features.common.errors import ConfigError, without_login
from jobs.ground.store.filesystems.remote import RemoteStore

# An unavailable single NameNode is reported within seconds; by default the library retries for three minutes.
# A nameservice keeps the number of attempts of the cluster's configuration, for a failover.
_ATTEMPTS = {"dfs.client.failover.max.attempts": "2"}


class _FileSystem(HdfsFileSystem):
    """Names are taken as they are: the library reads them as URLs, which end at `?`, `#` and `;`."""

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path


class HdfsStore(RemoteStore):
    """A folder of HDFS; see `Store`. A name is created by a rename that does not overwrite."""

    def __init__(self, root: str) -> None:
        """`root`: `hdfs://namenode:port/path`, or `hdfs://nameservice/path` of HADOOP_CONF_DIR.

        Raises ConfigError if it names no host.
        """
        url = urllib.parse.urlsplit(root)
        if not url.hostname or url.query or url.fragment or "@" in url.netloc:
            plain = without_login(root)
            raise ConfigError("tables.root", f"{plain!r} is not hdfs://namenode:port/path, or it has a login")
        folder = posixpath.normpath(url.path or "/")
        try:
            filesystem = _filesystem(url.hostname, url.port, os.getpid())
        except RuntimeError:
            raise ConfigError(
                "tables.root", f"{root!r}: without a port this must be a nameservice of HADOOP_CONF_DIR"
            ) from None
        super().__init__(f"hdfs://{url.netloc}{folder.rstrip('/')}", filesystem, folder)

    def below(self, name: str) -> HdfsStore:
        return HdfsStore(f"{self.root}/{name}")

    def make_folder(self, name: str) -> None:
        with self._service_errors():
            self._fs.makedirs(self._path(name), exist_ok=True)

    def put_if_absent(self, name: str, content: bytes) -> bool:
        path = self._path(name)
        draft = posixpath.join(posixpath.dirname(path), f".{uuid.uuid4().hex}.draft")
        with self._service_errors():
            try:
                with self._fs.open(draft, "wb", overwrite=False) as file:
                    file.write(content)
                self._fs.mv(draft, path, overwrite=False)
            except (FileExistsError, FileNotFoundError):
                # If the answer of the NameNode is lost, the library retries and finds our own file.
                return self._holds(name, content)
            finally:
                with suppress(FileNotFoundError):
                    self._fs.rm(draft)
        return True

    def _modified_s(self, info: Mapping[str, Any]) -> float:
        return float(info["modification_time"]) / 1000


@functools.cache
def _filesystem(host: str, port: int | None, _process: int) -> _FileSystem:
    """The client of a process, shared by its threads.

    It is cached here and not by fsspec, which drops it in every forked child, for example at the start of
    Spark: there its destructor would wait for ever for threads that were not forked.
    """
    return _FileSystem(host, port, skip_instance_cache=True, **(_ATTEMPTS if port else {}))
