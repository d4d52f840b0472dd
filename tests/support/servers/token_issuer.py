"""A token issuer of the tests, and a real XCache that believes it alone: TLS, `ztn`, SciTokens."""

import contextlib
import json
import os
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from daemons import open_folder
from jwt.algorithms import ECAlgorithm

from jobs.local_site.local.daemon import hand_over
from jobs.local_site.local.xrootd import Loopback, loopback

ISSUER, AUDIENCE = "https://issuer.example.org", "cache.example.org"
SCOPE = "storage.read:/store storage.read:/xrdpfc_command"


class Issuer:
    """Signs tokens; `key` is the one that the cache knows."""

    def __init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())

    def token(
        self, *, ends_in_s: int = 600, key: ec.EllipticCurvePrivateKey | None = None, **more: Any
    ) -> str:
        """A WLCG token for the cache; `more`: other claims."""
        now_s = int(time.time())
        claims = {"iss": ISSUER, "sub": "pusher", "aud": AUDIENCE, "scope": SCOPE, "wlcg.ver": "1.0"}
        times = {"iat": now_s - 600, "nbf": now_s - 600, "exp": now_s + ends_in_s}
        signed = key or self.key
        return jwt.encode(claims | times | more, signed, algorithm="ES256", headers={"kid": "k"})

    def remember(self, folder: Path) -> None:
        """Put the public key where the server's library keeps keys that it has fetched from an issuer."""
        known = json.loads(ECAlgorithm.to_jwk(self.key.public_key()))
        until_s = int(time.time()) + 7200
        jwks = {"keys": [known | {"kid": "k", "use": "sig", "alg": "ES256"}]}
        keys = json.dumps({"jwks": jwks, "next_update": until_s, "expires": until_s})
        (folder / "scitokens").mkdir(parents=True)
        with contextlib.closing(sqlite3.connect(folder / "scitokens" / "scitokens_cpp.sqllite")) as cache:
            cache.execute(
                "CREATE TABLE keycache (issuer text UNIQUE PRIMARY KEY NOT NULL, keys text NOT NULL)"
            )
            cache.execute("INSERT INTO keycache VALUES (?, ?)", (ISSUER, keys))
            cache.commit()


def _config(folder: Path) -> str:
    issuer = f"[Issuer test]\nissuer = {ISSUER}\nbase_path = /\n"
    rules = f"[Global]\naudience = {AUDIENCE}\nonmissing = deny\n\n{issuer}"
    (folder / "scitokens.cfg").write_text(rules)
    return (
        f"xrd.tls {folder}/host.pem {folder}/host.key\nxrd.tlsca certdir {folder}/trusted\n"
        "xrootd.tls capable login data\nxrootd.seclib libXrdSec.so\nsec.protocol ztn\n"
        "sec.protbind * only ztn\nofs.authorize 1\nscitokens.trace all\n"
        f"ofs.authlib libXrdAccSciTokens.so config={folder}/scitokens.cfg\n"
    )


def _certificates(folder: Path) -> None:
    """A certificate of localhost that signs itself, and the folder in which clients look for it."""
    (folder / "trusted").mkdir()
    words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    words += ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(folder / "host.key")]
    for command in (
        [*words, "-out", str(folder / "host.pem")],
        ["x509", "-in", str(folder / "host.pem"), "-out", str(folder / "trusted" / "host.pem")],
        ["rehash", str(folder / "trusted")],
    ):
        subprocess.run(["openssl", *command], check=True, capture_output=True)


@contextlib.contextmanager
def running(*, gstream_port: int | None = None) -> Iterator[tuple[Loopback, Issuer, str, Path]]:
    """The cache, its issuer, its URL, and the folder of the certificates that a client should trust.

    `gstream_port`: see `loopback`; opens are reported there too.
    """
    issuer = Issuer()
    with open_folder() as folder:
        _certificates(folder)
        issuer.remember(folder / "home")
        more = _config(folder)
        for path in (folder, folder / "home", folder / "home" / "scitokens"):
            hand_over(path)
        with contextlib.ExitStack() as stack:
            with mock.patch.dict(os.environ, {"XDG_CACHE_HOME": str(folder / "home")}):
                servers = loopback(
                    folder / "lb",
                    gstream_port=gstream_port,
                    reports_opens=gstream_port is not None,
                    more=more,
                )
                site = stack.enter_context(servers)
            yield site, issuer, f"roots://localhost:{site.cache.port}", folder / "trusted"
