"""Tables on S3. Spark needs hadoop-aws on its classpath; the rest uses s3fs, which a site installs."""

from __future__ import annotations

import importlib
import urllib.parse
from collections.abc import Mapping
from typing import Any

from features.errors import ConfigError
from jobs.store.filesystems.remote import RemoteStore


class S3Store(RemoteStore):
    """A prefix of a bucket; see `Store`. A name is created by a conditional write (`If-None-Match: *`)."""

    def __init__(self, root: str) -> None:
        """`root`: `s3a://bucket/prefix`; keys and endpoint as s3fs finds them. Raises ConfigError."""
        url = urllib.parse.urlsplit(root.rstrip("/"))
        if not url.netloc or not url.path.strip("/"):
            raise ConfigError("tables.root", f"{root!r} is not of the form s3a://bucket/prefix")
        try:
            s3fs = importlib.import_module("s3fs")
            botocore = importlib.import_module("botocore.exceptions")
        except ImportError:
            raise ConfigError("tables.root", f"{root!r} needs s3fs: pip install s3fs") from None
        self.faults = (OSError, RuntimeError, botocore.BotoCoreError)
        filesystem = s3fs.S3FileSystem(use_listings_cache=False)
        super().__init__(f"s3a://{url.netloc}{url.path}", filesystem, f"{url.netloc}{url.path}")

    def below(self, name: str) -> S3Store:
        return S3Store(f"{self.root}/{name}")

    def make_folder(self, name: str) -> None:
        """Nothing: a prefix comes with its first object."""

    def put_if_absent(self, name: str, content: bytes) -> bool:
        with self._told():
            try:
                self._fs.pipe_file(self._path(name), content, mode="create")
            except FileExistsError:
                return self.read(name) == content  # a retry may have met our own file
        return True

    def _modified_s(self, info: Mapping[str, Any]) -> float:
        changed = info.get("LastModified")
        return changed.timestamp() if changed else 0.0
