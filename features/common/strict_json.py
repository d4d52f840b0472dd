"""Parsing of JSON from outside into values that can be stored as UTF-8."""

import json
import re
from typing import Any

_SURROGATE = re.compile(r"\\u[dD][89A-Fa-f]")


def loads(text: bytes | str) -> Any:
    """The JSON value in `text`, whose bytes must be UTF-8.

    `json.loads` accepts half a surrogate pair, written as `\\ud800` or as the bytes ED A0 80, which cannot be
    encoded as UTF-8 later. Raises ValueError for that, for invalid JSON, and for JSON nested too deep.
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
