"""Which cache of a site a file belongs to: by hash, by who serves, and by who holds it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from features.common.arrays import BoolArray
from features.common.errors import ConfigError
from features.schema import CONTENTS
from jobs.ground.caches.federation import is_here
from jobs.ground.settings.tree import CacheSettings, Settings
from jobs.ground.store.keys import MomentKey
from jobs.ground.store.tables import Tables
from jobs.loop.plan.items import contents
from prefetch.target import Held

AS_OF = 1_772_323_200
NAMES = [f"/store/f{i}.root" for i in range(400)]
DIDS = pa.array([f"cms:{name}" for name in NAMES])
NODES = ("a", "b", "c")
CAPACITY = 'capacity = "1TB"\n'


def site(
    root: Path,
    names: tuple[str, ...] = NODES,
    *,
    redirector: str | None = "root://r:1094",
    drained: frozenset[str] = frozenset(),
) -> Settings:
    caches = {
        name: CacheSettings(
            name=name, kind="xcache", url=f"root://{name}:1094", site="EDGE", capacity=10**12,
            redirector=redirector, drain=name in drained,
        )
        for name in names
    }  # fmt: skip
    return Settings.load(tables=str(root), env={}).model_copy(update={"caches": caches})


def owners(
    settings: Settings, serving: set[str] | None = None, held: dict[str, list[str]] | None = None
) -> list[str]:
    held = held or {}
    for name, files in held.items():
        rows = contents(
            [Held(file, 1, 1, True, 1, False) for file in files],
            pa.array([f"cms:{file}" for file in files], pa.string()),
            taken_s=AS_OF,
        )
        Tables(settings.tables.root).replace_partition(CONTENTS, rows, MomentKey.at(AS_OF, name))
    mine: dict[str, BoolArray] = {}
    for name, cache in settings.caches.items():
        found = is_here(
            settings,
            cache,
            DIDS,
            held=[f"cms:{file}" for file in held.get(name, [])],
            serving=serving,
            at_s=AS_OF,
        )
        assert found is not None
        mine[name] = found
    assert (np.sum(list(mine.values()), axis=0) == 1).all()
    return [next(name for name in mine if mine[name][i]) for i in range(len(NAMES))]


@pytest.mark.parametrize("redirector", [None, "root://r:1094"])
def test_a_drained_or_lost_node_moves_its_share_alone(tmp_path: Path, redirector: str | None) -> None:
    before = owners(site(tmp_path, redirector=redirector))
    assert set(before) == set(NODES)
    drained = owners(site(tmp_path, redirector=redirector, drained=frozenset({"c"})))
    lost = owners(site(tmp_path, redirector=redirector), serving={"a", "b"})
    assert drained == lost
    assert {new for old, new in zip(before, lost, strict=True) if old == "c"} == {"a", "b"}
    assert all(new == old for old, new in zip(before, lost, strict=True) if old != "c")


def test_a_node_that_joins_gets_no_file_that_another_one_holds(tmp_path: Path) -> None:
    before = owners(site(tmp_path))
    held = {
        node: [name for name, of in zip(NAMES[:200], before, strict=False) if of == node] for node in NODES
    }
    joined = site(tmp_path, (*NODES, "d"))
    after = owners(joined, held=held)
    assert after[:200] == before[:200]
    moved = [(old, new) for old, new in zip(before[200:], after[200:], strict=True) if old != new]
    assert moved
    assert sum(new != "d" for _, new in moved) <= 0.1 * 200


def test_of_several_copies_the_one_counts_that_the_hash_names(tmp_path: Path) -> None:
    by_hash = owners(site(tmp_path / "0"))
    assert owners(site(tmp_path / "1"), held=dict.fromkeys(NODES, NAMES)) == by_hash
    others = owners(site(tmp_path / "2"), held={"b": NAMES, "c": NAMES})
    assert others == ["b" if of == "a" else of for of in by_hash]
    assert owners(site(tmp_path / "3"), held={"c": NAMES}) == ["c"] * len(NAMES)
    # What a node held two days ago, or holds that is lost, does not count.
    owners(site(tmp_path / "5"), held={"c": NAMES})
    settings = site(tmp_path / "5")
    late = is_here(settings, settings.caches["a"], DIDS, serving=NODES, at_s=AS_OF + 2 * 86400)
    assert late is not None
    assert late.tolist() == [of == "a" for of in by_hash]
    assert "c" not in owners(site(tmp_path / "4"), serving={"a", "b"}, held={"c": NAMES})


def test_without_redirector_the_hash_decides_alone(tmp_path: Path) -> None:
    alone = owners(site(tmp_path / "0", redirector=None))
    assert owners(site(tmp_path / "1", redirector=None), held={"c": NAMES}) == alone


def test_a_single_cache_has_everything_unless_it_is_drained(tmp_path: Path) -> None:
    for drained, expected in ((frozenset[str](), None), (frozenset({"a"}), [False] * len(NAMES))):
        settings = site(tmp_path, ("a",), drained=drained)
        found = is_here(settings, settings.caches["a"], DIDS)
        assert (None if found is None else found.tolist()) == expected


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('redirector = "http://r"', "redirector"),
        ('redirector = "root://x:1094"', "without the redirector"),
        ('redirector = "root://r:1094/path"', "redirector"),
    ],
)
def test_a_redirector_that_cannot_be_is_refused(tmp_path: Path, line: str, told: str) -> None:
    conf = tmp_path / "c.toml"
    conf.write_text(
        f'[caches.x]\nname = "x"\nkind = "xcache"\nurl = "root://x:1094"\ncapacity = "1TB"\n{line}\n'
    )
    with pytest.raises(ConfigError, match=told):
        Settings.load(conf, env={})


def test_caches_of_a_site_share_one_redirector(tmp_path: Path) -> None:
    conf = tmp_path / "c.toml"
    conf.write_text(
        "".join(
            f'[caches.{name}]\nname = "{name}"\nkind = "xcache"\nurl = "root://{name}:1094"\n{CAPACITY}'
            f'site = "E"\nredirector = "root://{of}:1"\n'
            for name, of in (("x", "r"), ("y", "s"))
        )
    )
    with pytest.raises(ConfigError, match="caches of one site have one redirector: x has root://r:1"):
        Settings.load(conf, env={})
