"""Logins by bearer tokens at a real XCache with the SciTokens plugin, renewed while a process runs."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import cache_client
import pytest
import token_issuer
from cryptography.hazmat.primitives.asymmetric import ec
from daemons import needed
from token_issuer import AUDIENCE, Issuer

from jobs.local_site.local.xrootd import Loopback

pytestmark = [pytest.mark.service, pytest.mark.xrootd]
Site = tuple[Loopback, Issuer, str, Path]


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    for site_and_issuer in needed("an XCache with xrootd-scitokens-plugins", token_issuer.running()):
        for i in range(5):
            site_and_issuer[0].add_file(f"/store/f{i}", b"x" * 300_000)
        yield site_and_issuer


def answers(
    site: Site, tmp_path: Path, script: str, tokens: list[str], trusted: Path | None = None
) -> list[str]:
    """What `script` prints; at each `input()` the token is replaced by the next."""
    running, _, url, usual = site
    token, other = tmp_path / "token", tmp_path / "next"

    def renew(text: str) -> None:
        other.touch(mode=0o600)
        other.write_text(text)
        other.replace(token)

    renew(tokens[0])
    cache = {"url": url, "namespace": str(running.namespace), "token": str(token), "audience": AUDIENCE}
    process = subprocess.Popen(
        cache_client.words(script, **cache),
        env={"X509_CERT_DIR": str(trusted or usual), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    lines = list[str]()
    for following in tokens[1:]:
        lines.append(process.stdout.readline().strip())
        renew(following)
        process.stdin.write("\n")
        process.stdin.flush()
    rest, _ = process.communicate(timeout=180)
    return [*lines, *rest.strip().splitlines()]


def test_a_token_fetches_and_evicts(site: Site, tmp_path: Path) -> None:
    script = """
        fetch("f0")
        print(at.confirm("/store/f0").held.complete, at.removes_open_files() in (True, False))
        print(told(lambda: at.evict("/store/f0", timeout_s=20)))
        for _ in range(1000):
            if at.confirm("/store/f0").held is None:
                break
            time.sleep(0.1)
        print(at.confirm("/store/f0").held)
        sys.exit(0)
    """
    lines = answers(site, tmp_path, script, [site[1].token()])
    assert lines == ["done 300000", "True True", "done None", "None"]


def test_what_is_wrong_is_told_in_a_line_and_works_once_the_token_is_renewed(
    site: Site, tmp_path: Path
) -> None:
    issuer, stranger = site[1], ec.generate_private_key(ec.SECP256R1())
    tokens = [
        issuer.token(ends_in_s=-100),
        issuer.token(aud="other.example.org"),
        issuer.token(scope="storage.read:/other"),
        "no token at all",
        issuer.token(key=stranger),
        issuer.token(),
    ]
    script = """
        for i in range(6):
            fetch("f1")
            i < 5 and input()
        sys.exit(0)
    """
    lines = answers(site, tmp_path, script, tokens)
    words = (
        "it expired 10",
        "its audience is other.example.org, not cache.example.org; renew the token",
        "its scope storage.read:/other does not cover /store/f1",
        "it holds no token with an end",
        "the cache does not know us: authentication failed",
        "done 300000",
    )
    assert len(lines) == len(words)
    for line, expected in zip(lines, words, strict=True):
        assert expected in line
        assert line.startswith(("TargetUnavailable: ", "done"))
        assert not any(part in line for token in tokens for part in token.split(".") if len(part) > 20)


def test_doctor_and_site_test_say_what_is_wrong_with_a_token(site: Site, tmp_path: Path) -> None:
    script = """
        from jobs.operator.operate import doctor
        from jobs.studies.site_test import run as site_test
        from jobs.studies.site_test.schedule import Limits
        settings = Settings.load(env={}).model_copy(update={"caches": {"x": cache}})
        print(*[one.detail for one in doctor.run(settings) if one.part == "cache x"])
        request = site_test.Request("x", ["root://localhost:1"], ["/store/f0"], Limits(10**8, 60))
        print(told(lambda: site_test.run(settings, request, say=print, on_progress=print)), flush=True)
        sys.exit(0)
    """
    lines = answers(site, tmp_path, script, [site[1].token(aud="other.example.org")])
    assert len(lines) == 2
    assert all("its audience is other.example.org, not cache.example.org" in line for line in lines)


def test_a_server_that_no_trusted_authority_vouches_for_gets_no_token(site: Site, tmp_path: Path) -> None:
    (tmp_path / "trusted").mkdir()
    token = site[1].token(sub="cheated")
    (line,) = answers(site, tmp_path, 'fetch("f0")\nsys.exit(0)', [token], tmp_path / "trusted")
    assert line.startswith("TargetUnavailable: ") and "a CA in X509_CERT_DIR" in line
    assert "subject=cheated" not in site[0].cache.log.read_text()


def test_a_renewed_token_is_used_by_what_follows(site: Site, tmp_path: Path) -> None:
    """The cache's log says by which token it was asked."""
    tokens = [site[1].token(sub=f"pusher{i}") for i in range(3)]
    script = """
        for i in range(3):
            fetch(f"f{2 + i}")
            i < 2 and input()
        sys.exit(0)
    """
    assert answers(site, tmp_path, script, tokens) == ["done 300000"] * 3
    log = site[0].cache.log.read_text()
    assert [f"subject=pusher{i}" in log for i in range(3)] == [True] * 3
