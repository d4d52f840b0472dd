"""Tokens, plain and signed by an issuer: who may change what, and all that makes one nobody's."""

import base64
import json
import os
import time
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given
from hypothesis import strategies as st
from jwt.algorithms import ECAlgorithm, RSAAlgorithm
from jwt.api_jws import PyJWS
from placement_server import threaded

from features.common.errors import ConfigError
from jobs.ground.settings.sections import IssuerSettings
from prefetch.placement.tokens import (
    OPERATORS,
    Issuer,
    SignedTokens,
    Tokens,
    federation,
    read_folder,
    read_token,
)

BOTH = Tokens("operators-token-123", {"xc1": "xc1s-token-4567890", "xc2": "xc2s-token-4567890"})


def test_each_token_is_its_owners() -> None:
    assert BOTH.owner("Bearer operators-token-123") == OPERATORS
    assert BOTH.owner("bearer xc1s-token-4567890") == "xc1"
    assert BOTH.owner("Bearer xc2s-token-4567890") == "xc2"
    assert BOTH
    assert not Tokens("", {})


@given(st.none() | st.text())
def test_nothing_else_is_anybodys(header: str | None) -> None:
    for tokens in (BOTH, Tokens("", {}), Tokens("", {"xc1": ""})):
        assert tokens.owner(header) is None


def private(path: Path, text: str = "operators-token-123\n") -> Path:
    path.touch(mode=0o600)
    path.write_text(text)
    return path


def test_a_file_is_read_only_if_it_is_private(tmp_path: Path) -> None:
    path = private(tmp_path / "token")
    assert read_token("", str(path), "serve.token") == "operators-token-123"
    path.chmod(0o640)
    with pytest.raises(ConfigError, match="open to others"):
        read_token("", str(path), "serve.token")
    with pytest.raises(ConfigError, match="twice"):
        read_token("x", str(path), "serve.token")
    with pytest.raises(ConfigError, match="cannot read"):
        read_token("", str(tmp_path / "none"), "serve.token")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("\n", "is empty"),
        ("  \n", "is empty"),
        ("operators-token-123\nsecond\n", "more than one line"),
        ("operators-token-123\n\n", "more than one line"),
    ],
)
def test_a_file_holds_one_token_and_nothing_else(tmp_path: Path, text: str, words: str) -> None:
    path = private(tmp_path / "token", text)
    with pytest.raises(ConfigError, match=words):
        read_token("", str(path), "serve.token")


def test_a_folder_has_a_file_per_cache(tmp_path: Path) -> None:
    folder = tmp_path / "tokens"
    folder.mkdir(mode=0o700)
    private(folder / "xc1")
    assert read_folder(str(folder), {"xc1", "xc2"}, "serve.cache_tokens") == {"xc1": "operators-token-123"}
    assert read_folder("", {"xc1"}, "serve.cache_tokens") == {}
    private(folder / "xc1~")
    with pytest.raises(ConfigError, match="xc1~ is of no configured cache"):
        read_folder(str(folder), {"xc1", "xc2"}, "serve.cache_tokens")
    folder.chmod(0o770)
    with pytest.raises(ConfigError, match="others may write"):
        read_folder(str(folder), {"xc1", "xc2"}, "serve.cache_tokens")


@pytest.mark.parametrize(
    ("operator", "caches", "words"),
    [
        ("hunter2", {}, "shorter than 16"),
        ("", {"xc1": "hunter2"}, "token of xc1 is shorter"),
        ("hunter2 hunter2 hunter2", {}, "blank"),
        (
            "hunter2-hunter2-hunter2",
            {"xc1": "hunter2-hunter2-hunter2"},
            "the operators and xc1 have the same",
        ),
        ("", {"a": "hunter2-hunter2-hunter2", "b": "hunter2-hunter2-hunter2"}, "a and b have the same"),
    ],
)
def test_a_token_that_protects_nothing_is_refused_and_not_shown(
    operator: str, caches: dict[str, str], words: str
) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        Tokens(operator, caches)
    assert "hunter2" not in str(caught.value)


URL, US = "https://issuer.example.org", "https://placement.example.org"
KEY, OTHER = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
OWNERS = {"ann": OPERATORS, "node": federation("EDGE")}


def jwks(path: Path, *keys: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> Path:
    key_set = [
        ECAlgorithm.to_jwk(key.public_key(), as_dict=True) | {"kid": f"k{i}"}
        if isinstance(key, ec.EllipticCurvePrivateKey)
        else RSAAlgorithm.to_jwk(key.public_key(), as_dict=True) | {"kid": f"k{i}"}
        for i, key in enumerate(keys)
    ]
    path.write_text(json.dumps({"keys": key_set}))
    return path


def token(key: Any = KEY, kid: str | None = "k0", alg: str = "ES256", **changed: Any) -> str:
    now_s = int(time.time())
    claims = {"iss": URL, "sub": "ann", "aud": US, "exp": now_s + 600, "nbf": now_s - 60} | changed
    present = {name: value for name, value in claims.items() if value is not None}
    text = json.dumps(present).encode()
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
    texts = [base64.urlsafe_b64encode(json.dumps(piece).encode()).rstrip(b"=").decode() for piece in part]
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
            url = f"{at.url}/liveness"
            return httpx.post(url, json=body, headers=headers, verify=False, timeout=60).status_code

        assert beat(body, token(sub="node")) == 200
        assert beat({"id": "e1"}, token(sub="e1")) == 200
        assert beat({"id": "e1"}, token(sub="node")) == 403
        assert beat(body, token(OTHER, sub="node")) == 401
        assert set(at.get("/liveness").json()["EDGE"]) == {"e1", "n7"}


@pytest.mark.parametrize("role", ["cache xc9", "site NOWHERE", "operators", "root"])
def test_a_role_that_nothing_configured_has_is_told(tmp_path: Path, role: str) -> None:
    issuer = IssuerSettings(keys=jwks(tmp_path / "j.json", KEY), audience=US, subjects={"ann": role})
    with (
        pytest.raises(ConfigError, match="none of"),
        threaded(tmp_path / "p.db", time.time, caches={"e1": ("EDGE", 10**12)}, issuers={URL: issuer}),
    ):
        pass
