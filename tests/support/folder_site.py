"""The settings of a site whose one cache is a folder, and files for its origin."""

from collections.abc import Iterable
from pathlib import Path


def write_files(folder: Path, names: Iterable[str], content: bytes) -> None:
    """Write a file of `content` for each of these LFNs in `folder`."""
    for name in names:
        path = folder / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


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
