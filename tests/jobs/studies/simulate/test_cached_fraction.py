from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from jobs.cli.main import app

KIT = [
    "--network",
    "750MB",
    "--cache-read",
    "1.2GB",
    "--nodes",
    "3",
    "--read-rate",
    "10MB",
    "--slots",
    "1000",
]


def test_kits_cluster_gains_most_at_its_published_fraction(tmp_path: Path) -> None:
    words = ["cached-fraction", *KIT, "--out", str(tmp_path / "eq1.html"), "--json", "--volume", "75TB"]
    told = json.loads(CliRunner().invoke(app, words, catch_exceptions=False).stdout)
    assert told["best_fraction"] == pytest.approx(0.83, abs=0.005)
    by_fraction = {round(point["cached_fraction"], 2): point for point in told["points"]}
    assert by_fraction[0.0]["processing_s"] == pytest.approx(75e12 / 750e6)
    assert by_fraction[0.8]["processing_s"] == pytest.approx(100_000 / 5)
    limits = [point["limited_by"] for point in told["points"]]
    assert limits == sorted(limits, key=["network", "caches"].index)
    assert (
        min(told["points"], key=lambda point: point["processing_s"])["cached_fraction"]
        == told["best_fraction"]
    )
    assert "5.8 times the throughput" in (tmp_path / "eq1.html").read_text()


@pytest.mark.parametrize("words", [["--volume", "0TB"], ["--network", "0MB"]])
def test_nothing_to_read_or_to_read_with_is_an_error(words: list[str]) -> None:
    assert "above 0" in str(CliRunner().invoke(app, ["cached-fraction", *words]).exception)


def test_a_configured_cluster_is_the_default(tmp_path: Path) -> None:
    site = tmp_path / "site.toml"
    cluster = 'network = "1GB", cache_per_node = "1GB", n_nodes = 1, workflow_per_slot = "1MB", n_slots = 100'
    site.write_text(f"[plan]\ncluster = {{ {cluster} }}\n")
    told = CliRunner().invoke(app, ["cached-fraction", "--conf", str(site), "--json"], catch_exceptions=False)
    assert json.loads(told.stdout)["best_fraction"] == 0  # 100 MB/s of computing: the network is enough
    assert {point["limited_by"] for point in json.loads(told.stdout)["points"]} == {"computing"}
