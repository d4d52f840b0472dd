"""Names of data among a job's arguments and transferred files."""

import re
from collections.abc import Iterable

_URL = re.compile(
    r"\b(?:x?roots?|https?|davs?|osdf|pelican|stash|gsiftp|srm|rucio)://"
    r"""[^\s"',;/\\\]\[<>]*(?:;[^\s"'/\\\]\[<>]*)?/[^\s"',;\\\]\[<>]+"""
)
_LFN = re.compile(r"""(?<![\w/.:-])/store/[^\s"',;\\\]\[<>]+""")
_DID = re.compile(r"(?<![\w/.:-])[A-Za-z][\w.-]*:[\w][\w.+-]*\.root(?:\.\d+)?(?![\w/])")
_WEB = ("http", "dav")
_OPTIONS = re.compile(r"(?<=[^/]);[^/]*(?=/)|:[a-z]+=[^/]*$")
"""What ARC writes into a URL: `;name=value` after the host, `:name=value` at the end."""
_BY_RUCIO = re.compile(r"\Arucio://[^/]+/replicas/([^/]+)/([^/]+)\Z")


def named(texts: Iterable[str], *, is_framework: bool = False) -> tuple[str, ...]:
    """LFNs, DIDs and URLs of data in `texts`, each once; of a framework, whose URLs are code, LFNs alone."""
    names: dict[str, None] = {}
    for text in texts:
        # Without ARC's options; of one that asks Rucio, the DID.
        plain = () if is_framework else (_OPTIONS.sub("", url) for url in _URL.findall(text))
        urls = (_BY_RUCIO.sub(r"\1:\2", url) for url in plain)
        names |= dict.fromkeys(url for url in urls if not url.startswith(_WEB) or is_data(url))
        bare = _URL.sub(" ", text)
        names |= dict.fromkeys((*_LFN.findall(bare), *(() if is_framework else _DID.findall(bare))))
    return tuple(names)


def is_data(url: str) -> bool:
    """Whether a name is a file of data, by its path."""
    path = url.partition("?")[0]
    return "/store/" in path or path.endswith(".root")
