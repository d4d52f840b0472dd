"""What the file of an order says to another site, and which files are refused."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

from features.common.errors import ModelError
from features.spec import COLUMNS
from models.learning.learners import LightGBM
from models.serving.bundle import OrderModel
from models.serving.order_file import MOST_BYTES, OrderFile


@pytest.fixture(scope="module")
def order_file() -> OrderFile:
    draw = np.random.default_rng(1)
    x = pd.DataFrame(draw.random((500, len(COLUMNS))).astype(np.float32), columns=list(COLUMNS))
    is_read = (x["recency_s"] < 0.3).to_numpy().astype(np.float64)
    text = LightGBM(trees=2, min_rows=20).fit(x, is_read).text
    order = OrderModel(
        horizons_s=(5400,),
        columns=COLUMNS,
        kinds=("root", "alice_thesis", ""),
        until_s=9000,
        readers=("user",),
        regions=("emea",),
    )
    return OrderFile(order, (text,))


def test_a_file_is_read_as_it_was_written_but_for_kinds_that_could_be_parts_of_names(
    order_file: OrderFile,
) -> None:
    data = order_file.to_bytes()
    assert b"thesis" not in data
    found = OrderFile.of(data)
    assert found.order == dataclasses.replace(order_file.order, kinds=("root", "/1", ""))
    assert found.trees == order_file.trees
    assert found.to_bytes() == data


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"format": 1}, "an older cachecast wrote it; export it again"),
        ({"format": 3}, "not of format 2"),
        ({"trees": []}, "a model per horizon"),
        ({"trees": ["tree\n"]}, "damaged"),
        ({"order": {"regions": ["emea\u001b[2J"]}}, "region"),
        ({"order": {"regions": []}}, "region"),
        ({"order": {"kinds": ["x" * 17]}}, "kinds"),
        ({"order": {"columns": ["recency_s"]}}, "columns"),
        ({"order": {"horizons_s": [-1]}}, "horizons_s"),
        ({"order": {"until_s": "long ago"}}, "until_s"),
        ({"order": {"until_s": 10**18}}, "cannot be read"),
    ],
)
def test_an_order_that_cannot_be_followed_is_refused(
    order_file: OrderFile, changed: dict[str, Any], why: str
) -> None:
    raw = json.loads(order_file.to_bytes())
    order = raw["order"] | changed.get("order", {})
    with pytest.raises(ModelError, match=why):
        OrderFile.of(json.dumps(raw | changed | {"order": order}).encode())


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"\xff", b'{"order"', b"[" * 100_000, b" " * (MOST_BYTES + 1), b'{"trees": NaN}']
)
def test_what_is_no_order_is_refused(data: bytes) -> None:
    with pytest.raises(ModelError, match="the order cannot be read"):
        OrderFile.of(data)
