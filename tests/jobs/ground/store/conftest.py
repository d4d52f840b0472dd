"""Where tables are kept: a local folder, a real HDFS and a real S3."""

import uuid
from pathlib import Path

import pytest

from jobs.ground.store.tables import Tables

HDFS, S3 = (pytest.param(name, marks=pytest.mark.service) for name in ("hdfs", "s3"))


@pytest.fixture(params=["local", HDFS, S3])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "local":
        return str(tmp_path / "tables")
    return f"{request.getfixturevalue(request.param)}/{uuid.uuid4().hex}"


@pytest.fixture
def local(tmp_path: Path) -> Tables:
    return Tables(str(tmp_path / "tables"))
