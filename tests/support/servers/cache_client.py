"""A cache asked by a process of its own: the XRootD client has one login and one trust a process."""

import json
import sys
import textwrap

_PRELUDE = """
import json, sys, time
from features.common.errors import CachecastError
from jobs.ground.caches.inventory import target
from jobs.ground.settings.tree import CacheSettings, Settings
cache = CacheSettings(name="x", kind="xcache", capacity=10**9, **json.loads(sys.argv[1]))
at = target(cache)
def told(do):
    try:
        return f"done {do()}"
    except CachecastError as error:
        return f"{type(error).__name__}: {error}"
def fetch(name):
    print(told(lambda: at.prefetch(f"/store/{name}", timeout_s=20)), flush=True)
"""


def words(script: str, **cache: str) -> list[str]:
    """The command line of `script`, in which `at` is the target of the cache with these settings."""
    return [sys.executable, "-c", _PRELUDE + textwrap.dedent(script), json.dumps(cache)]
