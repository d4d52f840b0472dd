"""The command `cachecast`, as `python -m cachecast`."""

from __future__ import annotations

from jobs.cli.main import main

if __name__ == "__main__":
    main()
