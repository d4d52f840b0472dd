"""Commits on S3 by a real server: none is written where another could be overwritten."""

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import botocore.exceptions
import pytest
import s3fs

from features.common.errors import ConfigError
from features.schema import REJECTS
from jobs.ground.store.filesystems.s3 import S3Store
from jobs.ground.store.tables import Tables

pytestmark = pytest.mark.service
KEY = ("2026-03-01",)
Call = Callable[..., Any]


def without_mode(pipe_file: Call) -> Call:
    """As s3fs was before it knew `mode`; fsspec then looks for the name, and writes it a moment later."""

    async def older(self: Any, path: str, data: bytes, **options: Any) -> Any:
        return await pipe_file(self, path, data, **options)

    return older


def without_condition(call_s3: Call) -> Call:
    """As a server does that does not know conditional writes."""

    async def ignoring(self: Any, method: str, *args: Any, **options: Any) -> Any:
        options.pop("IfNoneMatch", None)
        return await call_s3(self, method, *args, **options)

    return ignoring


def without_reason(call_s3: Call) -> Call:
    """As servers do that refuse with 412, but do not say which condition failed."""

    async def terse(self: Any, method: str, *args: Any, **options: Any) -> Any:
        try:
            return await call_s3(self, method, *args, **options)
        except FileExistsError as error:
            refused = error.__cause__
            assert isinstance(refused, botocore.exceptions.ClientError)
            del refused.response["Error"]["Condition"]
            raise s3fs.errors.translate_boto_error(refused) from refused

    return terse


@pytest.fixture
def root(s3: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(S3Store, "_proven", set())
    # fsspec keeps one client for all, with the methods that it had when it was made.
    s3fs.S3FileSystem.clear_instance_cache()
    yield f"{s3}/{uuid.uuid4().hex}"
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.mark.parametrize(
    ("name", "broken", "words"),
    [
        ("_pipe_file", without_mode, r"s3fs \S+ knows no conditional writes.*pip install"),
        ("_call_s3", without_condition, "the server overwrites what is there"),
    ],
)
def test_a_commit_that_could_overwrite_another_is_refused(
    root: str, monkeypatch: pytest.MonkeyPatch, name: str, broken: Callable[[Call], Call], words: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(s3fs.S3FileSystem, name, broken(getattr(s3fs.S3FileSystem, name)))
        with pytest.raises(ConfigError, match=rf"tables\.root.*{words}"):
            Tables(root).replace_rows(REJECTS, [], KEY)
    s3fs.S3FileSystem.clear_instance_cache()
    assert not Tables(root).exists(REJECTS)
    assert not S3Store(root).below(REJECTS.name).names(), "the proof leaves nothing"


def test_a_proof_leaves_nothing_and_is_made_once(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = S3Store(root), S3Store(root).below("t")
    assert first.put_if_absent("a", b"1")
    assert first.names() == ["a"]
    monkeypatch.setattr(S3Store, "_prove", None)
    assert second.put_if_absent("b", b"1")


def test_a_name_that_is_there_is_not_written_again(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert S3Store(root).put_if_absent("a", b"1")
    assert not S3Store(root).put_if_absent("a", b"2")
    monkeypatch.setattr(s3fs.S3FileSystem, "_call_s3", without_reason(s3fs.S3FileSystem._call_s3))
    s3fs.S3FileSystem.clear_instance_cache()
    store = S3Store(root)
    assert not store.put_if_absent("a", b"2")
    assert store.read("a") == b"1"
