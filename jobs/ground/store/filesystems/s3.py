"""Tables on S3, by s3fs, an extra of the package."""

from __future__ import annotations

import importlib
import inspect
import urllib.parse
import uuid
from collections.abc import Mapping
from typing import Any, ClassVar

from features.common.errors import ConfigError, without_login
from jobs.ground.store.filesystems.remote import RemoteStore

_PRECONDITION_FAILED = 412


class S3Store(RemoteStore):
    """A prefix of a bucket; see `Store`. A name is created by a conditional write (`If-None-Match: *`).

    A commit could be overwritten by an old s3fs, which checks for the name and then writes it, and by a
    server that ignores the condition. Old versions are refused. Servers are tested by each process, once per
    bucket, before it creates its first name.
    """

    _proven: ClassVar[set[str]] = set()

    def __init__(self, root: str) -> None:
        """`root`: `s3a://bucket/prefix`; keys and endpoint as s3fs finds them. Raises ConfigError."""
        url = urllib.parse.urlsplit(root.rstrip("/"))
        if not url.netloc or not url.path.strip("/") or url.query or url.fragment or "@" in url.netloc:
            plain = without_login(root)
            raise ConfigError("tables.root", f"{plain!r} is not s3a://bucket/prefix, or it has a login")
        try:
            s3fs = importlib.import_module("s3fs")
            botocore = importlib.import_module("botocore.exceptions")
        except ImportError:
            raise ConfigError("tables.root", f"{root!r} needs s3fs: pip install 'cachecast[s3]'") from None
        writing = getattr(s3fs.S3FileSystem, "_pipe_file", None)
        if writing is None or "mode" not in inspect.signature(writing).parameters:
            raise ConfigError(
                "tables.root",
                f"{root!r}: s3fs {s3fs.__version__} knows no conditional writes, and commits could be lost; "
                "pip install 'cachecast[s3]'",
            )
        self.faults = (OSError, RuntimeError, botocore.BotoCoreError)
        filesystem = s3fs.S3FileSystem(use_listings_cache=False)
        super().__init__(f"s3a://{url.netloc}{url.path}", filesystem, f"{url.netloc}{url.path}")

    def below(self, name: str) -> S3Store:
        return S3Store(f"{self.root}/{name}")

    def make_folder(self, name: str) -> None:
        """Do nothing: a prefix needs no folder."""

    def put_if_absent(self, name: str, content: bytes) -> bool:
        bucket = self._folder.partition("/")[0]
        if bucket not in self._proven:
            self._prove()
            self._proven.add(bucket)
        # A retry may have found our own file.
        return self._created(name, content) or self._holds(name, content)

    def _prove(self) -> None:
        """Raise ConfigError if an existing name can be created again."""
        name = f".probe-{uuid.uuid4().hex}"
        try:
            if self._created(name, b"1") and self._created(name, b"2"):
                raise ConfigError(
                    "tables.root",
                    f"{self.root}: the server overwrites what is there in spite of If-None-Match: *, and "
                    "commits could be lost; update it, or keep the tables elsewhere",
                )
        finally:
            self.remove(name)

    def _created(self, name: str, content: bytes) -> bool:
        with self._service_errors():
            try:
                self._fs.pipe_file(self._path(name), content, mode="create")
            except FileExistsError:
                return False
            except OSError as error:
                # Some servers do not name the failed condition; s3fs then reports an invalid argument.
                answer = getattr(error.__cause__, "response", {})
                if answer.get("ResponseMetadata", {}).get("HTTPStatusCode") != _PRECONDITION_FAILED:
                    raise
                return False
        return True

    def _modified_s(self, info: Mapping[str, Any]) -> float:
        changed = info.get("LastModified")
        return changed.timestamp() if changed else 0.0
