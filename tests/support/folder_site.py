"""The settings of a site whose one cache is a folder."""

from pathlib import Path


def folder_site(at: Path, more: str = "", *, cache: str = "dir", capacity: str = "1GB") -> Path:
    """Write `at`/site.toml: its tables, journal, cache and origin lie in `at` too.

    `more`: keys of the cache, and tables of other settings behind them.
    """
    path = at / "site.toml"
    path.write_text(
        f'[tables]\nroot = "{at}/tables"\n[push]\njournal = "{at}/journal.db"\n'
        f'[caches.{cache}]\nname = "{cache}"\nkind = "directory"\ncapacity = "{capacity}"\n'
        f'url = "{at}/cache"\norigin = "{at}/origin"\n{more}'
    )
    return path
