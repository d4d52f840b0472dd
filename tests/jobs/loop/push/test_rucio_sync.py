"""What Rucio hears of a cache: complete files that its rules let stay."""

import time
from pathlib import Path

from folder_site import folder_site, write_files
from table_rows import put_contents

from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables
from jobs.loop.push import rucio_sync
from jobs.loop.push.rucio_sync import ReplicaDrift
from prefetch.lfn import Did

HELD = ("/store/mc/Run3/TT/AODSIM/v1/0/f.root", "/store/user/alice/f.root", "/store/data/x/f.root")


def drift(folder: Path, rules: str) -> ReplicaDrift:
    """What a sync of a folder cache that holds `HELD` would tell, by the site's `rules`."""
    write_files(folder / "cache" / "files", HELD, b"x")
    (folder / "origin").mkdir(exist_ok=True)
    more = f'[plan]\nrules = [{rules}]\n[rucio]\nbroker = "stomp://127.0.0.1:1"\n'
    conf = folder_site(folder, f'rse = "XCACHE"\n{more}')
    answer = rucio_sync.sync(Settings.load(conf, env={}), cache="dir", dry_run=True, wait_s=0, recheck=False)
    assert isinstance(answer, ReplicaDrift)
    return answer


def test_what_must_not_be_cached_is_not_told(tmp_path: Path) -> None:
    assert (drift(tmp_path, "").held, drift(tmp_path, "").to_add) == (3, 3)
    never = '{ action = "never", tiers = ["AODSIM"] }, { action = "never", users = ["alice"] }'
    assert (drift(tmp_path, never).held, drift(tmp_path, never).to_add) == (1, 1)
    excluded = '{ action = "exclude", users = ["*"] }'
    assert drift(tmp_path, excluded).held == 3, "left to the cache's own judgement, it may stay"


def test_a_recheck_asks_for_what_the_cache_held_in_the_last_week(tmp_path: Path) -> None:
    tables, now_s = Tables(str(tmp_path)), int(time.time())
    for days_ago, names in ((1, HELD[:2]), (2, HELD[:1]), (30, HELD)):
        put_contents(tables, "dir", now_s - days_ago * 86400, dict.fromkeys(names, 1))
    put_contents(tables, "other", now_s, dict.fromkeys(HELD, 1))
    assert rucio_sync._held_lately(tables, "dir") == {Did("cms", name) for name in HELD[:2]}
