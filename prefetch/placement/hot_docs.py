"""What the framework never sees, in its OpenAPI document: the two hot routes, and the body of `/score`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prefetch.placement.bodies import ScoreAsked

_REFS = "#/components/schemas/{model}"
SCORE_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": _REFS.format(model=ScoreAsked.__name__)}}},
    }
}
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
    """`make`, an application's `openapi`, with the hot routes and the body of `/score`."""

    def made() -> dict[str, Any]:
        document = make()
        document["paths"] = {**_PATHS, **document["paths"]}
        asked = ScoreAsked.model_json_schema(ref_template=_REFS)
        document["components"]["schemas"] |= asked.pop("$defs") | {ScoreAsked.__name__: asked}
        return document

    return made
