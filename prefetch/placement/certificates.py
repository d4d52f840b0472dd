"""The subject of a client's certificate, as the grid writes it: `/C=ES/O=PIC/CN=host/xc1.pic.es`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

SUBJECT = "subject"
"""Of a request's state: the subject of the verified certificate of its connection, or None."""
_SHORT = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "emailAddress": "emailAddress",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "userId": "UID",
}
_PART = re.compile(r"/\w+=")


def subject_of(certificate: Mapping[str, Any] | None) -> str | None:
    """The subject of what `ssl` knows of a verified certificate; None without one.

    None too for an attribute that the grid does not write, and for a value that would read as another part.
    """
    pairs = [pair for part in (certificate or {}).get("subject", ()) for pair in part]
    if not pairs or any(name not in _SHORT or _PART.search(f"/{value}") for name, value in pairs):
        return None
    return "".join(f"/{_SHORT[name]}={value}" for name, value in pairs)
