"""The two hot routes in the OpenAPI document: the framework never sees them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_JSON: dict[str, Any] = {"content": {"application/json": {"schema": {}}}}
_PATHS: dict[str, Any] = {
    "/serverRanges": {
        "get": {
            "summary": "Server Ranges",
            "description": "What Rucio reads to rewrite PFNs: live servers by site, with address and size, "
            "and `[index, upper]` ranges of the hash of the name without scope.",
            "responses": {
                "200": {"description": "Sites", **_JSON},
                "304": {"description": "As by If-None-Match"},
            },
        }
    },
    "/ds/{n}/{did}": {
        "get": {
            "summary": "Dataset",
            "description": 'At most `n` sites (0: all) that hold a dataset, best first, or `["other"]`.',
            "parameters": [
                {"name": "n", "in": "path", "required": True, "schema": {"type": "integer", "minimum": 0}},
                {
                    "name": "did",
                    "in": "path",
                    "required": True,
                    "schema": {"type": "string"},
                    "description": "SCOPE:NAME; a name may hold slashes",
                },
            ],
            "responses": {
                "200": {"description": "Names of sites", **_JSON},
                "304": {"description": "As by If-None-Match"},
                "400": {"description": "Not a number, or not a name", **_JSON},
            },
        }
    },
}


def with_hot_routes(make: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
    """`make`, an application's `openapi`, with the hot routes among its paths."""

    def made() -> dict[str, Any]:
        document = make()
        document["paths"] = {**_PATHS, **document["paths"]}
        return document

    return made
