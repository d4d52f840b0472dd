"""JSON from outside as values that a table, a database or a log line can hold."""

from __future__ import annotations

import json
import re
from typing import Any

_SURROGATE = re.compile(r"\\u[dD][89A-Fa-f]")


def loads(text: bytes | str) -> Any:
    """The JSON value in `text`, whose bytes must be UTF-8.

    `json.loads` itself lets half a surrogate pair through, written as `\\ud800` or as the bytes ED A0 80; no
    UTF-8 holds it, so that whatever writes it out fails later. Raises ValueError for that, for what is not
    JSON, and for what is nested too deep.
    """
    plain = text.decode() if isinstance(text, bytes) else text
    try:
        value = json.loads(plain)
        if not plain.isascii():
            plain.encode()
        if _SURROGATE.search(plain):
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("nested too deep") from None
    return value
