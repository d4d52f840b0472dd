"""Run by the Rucio server's own Python, with RUCIO_CONFIG: `rucio_wsgi.py PORT` serves REST until ended.

Makes the database first. SQLite cannot have parallel writers, so there is one thread.
"""

import sqlite3
import sys
from collections.abc import Callable, Iterable
from typing import Any

from rucio.common.config import config_get  # pyright: ignore
from rucio.db.sqla.util import build_database, create_base_vo, create_root_account
from waitress import serve


def main() -> None:
    build_database()
    create_base_vo()
    create_root_account()
    # The cache consumer writes to the same file.
    connection = sqlite3.connect(config_get("database", "default").removeprefix("sqlite:///"))
    connection.execute("pragma journal_mode=WAL")
    connection.close()
    # Its import reads tables that were just made.
    from rucio.web.rest.flaskapi.v1.main import application  # noqa: PLC0415

    def app(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        # Apache provides it; /redirect/<scope>/<name> dies without.
        query = f"?{environ['QUERY_STRING']}" if environ.get("QUERY_STRING") else ""
        environ.setdefault("REQUEST_URI", f"{environ['SCRIPT_NAME']}{environ['PATH_INFO']}{query}")
        answer: Iterable[bytes] = application(environ, start)
        return answer

    serve(app, host="127.0.0.1", port=int(sys.argv[1]), threads=1)


main()
