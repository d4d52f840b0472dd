from __future__ import annotations

from pathlib import Path

import pytest
from cachecast_main import asked

from features.common.errors import InputError

KIT = {"network": "750MB", "cache-read": "1.2GB", "nodes": "3", "read-rate": "10MB", "slots": "1000"}


def test_kits_cluster_gains_most_at_its_published_fraction(tmp_path: Path) -> None:
    cluster = [word for name, value in KIT.items() for word in (f"--{name}", value)]
    answer = asked("cached-fraction", *cluster, "--out", tmp_path / "eq1.html", "--volume", "75TB")
    assert answer["best_fraction"] == pytest.approx(0.83, abs=0.005)
    by_fraction = {round(point["cached_fraction"], 2): point for point in answer["points"]}
    assert by_fraction[0.0]["processing_s"] == pytest.approx(75e12 / 750e6)
    assert by_fraction[0.8]["processing_s"] == pytest.approx(100_000 / 5)
    limits = [point["limited_by"] for point in answer["points"]]
    assert limits == sorted(limits, key=["network", "caches"].index)
    quickest = min(answer["points"], key=lambda point: point["processing_s"])
    assert quickest["cached_fraction"] == answer["best_fraction"]
    assert "5.8 times the throughput" in (tmp_path / "eq1.html").read_text()


@pytest.mark.parametrize("words", [["--volume", "0TB"], ["--network", "0MB"]])
def test_nothing_to_read_or_to_read_with_is_an_error(words: list[str]) -> None:
    with pytest.raises(InputError, match="above 0"):
        asked("cached-fraction", *words)


def test_a_configured_cluster_is_the_default(tmp_path: Path) -> None:
    site = tmp_path / "site.toml"
    cluster = 'network = "1GB", cache_per_node = "1GB", n_nodes = 1, workflow_per_slot = "1MB", n_slots = 100'
    site.write_text(f"[plan]\ncluster = {{ {cluster} }}\n")
    answer = asked("cached-fraction", "--conf", site)
    assert answer["best_fraction"] == 0  # 100 MB/s of computing: the network is enough
    assert {point["limited_by"] for point in answer["points"]} == {"computing"}
