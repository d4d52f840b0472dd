"""Tokens that an issuer signs: whose they are, and all that makes one nobody's."""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm
from jwt.api_jws import PyJWS
from placement_server import threaded

from features.common.errors import ConfigError
from jobs.ground.settings.serve import IssuerSettings
from prefetch.placement.tokens import OPERATORS, Issuer, SignedTokens, Tokens, federation

URL, US = "https://issuer.example.org", "https://placement.example.org"
KEY, OTHER = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
OWNERS = {"ann": OPERATORS, "node": federation("EDGE")}
Sign = Callable[..., str]


def jwks(path: Path, *keys: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> Path:
    found = [
        ECAlgorithm.to_jwk(key.public_key(), as_dict=True) | {"kid": f"k{i}"}
        if isinstance(key, ec.EllipticCurvePrivateKey)
        else RSAAlgorithm.to_jwk(key.public_key(), as_dict=True) | {"kid": f"k{i}"}
        for i, key in enumerate(keys)
    ]
    path.write_text(json.dumps({"keys": found}))
    return path


def token(key: Any = KEY, kid: str | None = "k0", alg: str = "ES256", **changed: Any) -> str:
    now_s = int(time.time())
    claims = {"iss": URL, "sub": "ann", "aud": US, "exp": now_s + 600, "nbf": now_s - 60} | changed
    kept = {name: value for name, value in claims.items() if value is not None}
    text = json.dumps(kept).encode()
    return PyJWS().encode(text, key, algorithm=alg, headers={"kid": kid} if kid else {})


@pytest.fixture
def signed(tmp_path: Path) -> SignedTokens:
    return SignedTokens([Issuer(URL, jwks(tmp_path / "jwks.json", KEY), US, OWNERS)])


def test_a_token_is_its_subjects(signed: SignedTokens) -> None:
    assert signed.owner(token()) == OPERATORS
    assert signed.owner(token(sub="node", kid=None, aud=["else", US])) == federation("EDGE")
    both = Tokens("operators-token-123", {}, signed=signed)
    assert both.owner(f"Bearer {token(sub='node')}") == federation("EDGE")
    assert both.owner("Bearer operators-token-123") == OPERATORS
    assert both.owner(f"Basic {token()}") is None


def test_an_rsa_key_signs_too(tmp_path: Path) -> None:
    key = rsa.generate_private_key(65537, 2048)
    signed = SignedTokens([Issuer(URL, jwks(tmp_path / "jwks.json", OTHER, key), US, OWNERS)])
    assert signed.owner(token(key, "k1", "RS256")) == OPERATORS


def unsigned(**header: Any) -> str:
    part = [header, {"iss": URL, "sub": "ann", "aud": US, "exp": int(time.time()) + 600}]
    texts = [base64.urlsafe_b64encode(json.dumps(one).encode()).rstrip(b"=").decode() for one in part]
    return ".".join([*texts, ""])


def by_public_key(folder: Path) -> str:
    """Signed as with a secret that is the public key: who mixes algorithms up believes it."""
    return jwt.encode(
        {"iss": URL, "sub": "ann", "aud": US, "exp": int(time.time()) + 600},
        json.loads((folder / "jwks.json").read_text())["keys"][0]["x"],
        algorithm="HS256",
        headers={"kid": "k0"},
    )


def test_nobody_elses_token_is_anybodys(signed: SignedTokens, tmp_path: Path) -> None:
    now_s = int(time.time())
    for wrong in (
        token(OTHER),
        token(sub="eve"),
        token(sub=None),
        token(sub=["ann"]),
        token(aud="https://other.example.org"),
        token(aud=None),
        token(iss="https://other.example.org"),
        token(iss=[URL]),
        token(exp=now_s - 60),
        token(exp=None),
        token(exp="soon"),
        token(exp=1e400),
        token(nbf=now_s + 600),
        token(kid="k9"),
        unsigned(alg="none"),
        unsigned(alg="ES256", kid="k0"),
        unsigned(alg=["ES256"], kid={"k": 0}),
        by_public_key(tmp_path),
        token() + "A",
        token()[:-8],
        "a.b.c",
        "..",
        "." * 10_000,
        token(more="x" * 10_000),
    ):
        assert signed.owner(wrong) is None, wrong


def test_new_keys_are_taken_up_and_a_broken_file_leaves_the_old_ones(tmp_path: Path) -> None:
    path = jwks(tmp_path / "jwks.json", KEY)
    signed = SignedTokens([Issuer(URL, path, US, OWNERS)])
    path.write_text("{")
    assert signed.owner(token()) == OPERATORS
    jwks(path, OTHER)
    os.utime(path, ns=(1, 1))
    assert (signed.owner(token()), signed.owner(token(OTHER))) == (None, OPERATORS)
    path.unlink()
    assert signed.owner(token(OTHER)) == OPERATORS
    os.mkfifo(path)
    assert signed.owner(token(OTHER)) == OPERATORS


@pytest.mark.parametrize(
    ("text", "mode", "why"),
    [
        (None, 0o644, "cannot read"),
        ("{", 0o644, "no JSON Web Key Set"),
        ('{"keys": []}', 0o644, "no public"),
        ('{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}', 0o644, "no public"),
        ('{"keys": 3}', 0o644, "no JSON Web Key Set"),
        ("good", 0o666, "others may write"),
    ],
)
def test_a_file_of_keys_that_is_of_no_use_is_told(
    tmp_path: Path, text: str | None, mode: int, why: str
) -> None:
    path = tmp_path / "jwks.json"
    if text == "good":
        jwks(path, KEY)
    elif text is not None:
        path.write_text(text)
    if text is not None:
        path.chmod(mode)
    with pytest.raises(ConfigError, match=why):
        SignedTokens([Issuer(URL, path, US, OWNERS)])


def test_the_service_admits_a_node_by_a_signed_token_of_its_site(tmp_path: Path) -> None:
    subjects = {"node": "site EDGE", "ann": "operator", "e1": "cache e1"}
    issuer = IssuerSettings(keys=jwks(tmp_path / "jwks.json", KEY), audience=US, subjects=subjects)
    body = {"id": "n7", "address": "n7.example.org:1094", "size": 5 * 10**12}
    with threaded(tmp_path / "p.db", time.time, caches={"e1": ("EDGE", 10**12)}, issuers={URL: issuer}) as at:

        def beat(body: dict[str, Any], text: str) -> int:
            headers = {"authorization": f"Bearer {text}"}
            return httpx.post(f"{at.url}/liveness", json=body, headers=headers).status_code

        assert beat(body, token(sub="node")) == 200
        assert beat({"id": "e1"}, token(sub="e1")) == 200
        assert beat({"id": "e1"}, token(sub="node")) == 403
        assert beat(body, token(OTHER, sub="node")) == 401
        assert set(httpx.get(f"{at.url}/liveness").json()["EDGE"]) == {"e1", "n7"}


@pytest.mark.parametrize("role", ["cache xc9", "site NOWHERE", "operators", "root"])
def test_a_role_that_nothing_configured_has_is_told(tmp_path: Path, role: str) -> None:
    issuer = IssuerSettings(keys=jwks(tmp_path / "j.json", KEY), audience=US, subjects={"ann": role})
    with (
        pytest.raises(ConfigError, match="none of"),
        threaded(tmp_path / "p.db", time.time, caches={"e1": ("EDGE", 10**12)}, issuers={URL: issuer}),
    ):
        pass
