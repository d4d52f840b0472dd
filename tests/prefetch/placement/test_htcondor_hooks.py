"""The hooks of conf/deploy/htcondor, fed as HTCondor's job router feeds them, against the live service."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import classad2
import http_answers
import pytest
from placement_server import PlacementServer, refresh, threaded

HOOKS = Path(__file__).parents[3] / "conf" / "deploy" / "htcondor"
ROUTE = '[ Name = "caches"; TargetUniverse = 5 ]'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlacementServer]:
    database = tmp_path_factory.mktemp("hooks") / "placement.db"
    refresh(database)
    with threaded(database, time.time) as started:
        started.beat("xc1")
        started.beat("xf1")
        yield started


def run(hook: str, text: str, url: str, *, reason: str = "") -> dict[str, str]:
    """The ad that a hook writes; `reason`: the line on stderr, or its part, if it leaves the job alone."""
    env = {"PATH": "/usr/bin:/bin", "CACHECAST_URL": url}
    command = [sys.executable, str(HOOKS / f"{hook}.py")]
    answer = subprocess.run(
        command, input=text, env=env, capture_output=True, text=True, timeout=180, check=True
    )
    assert reason in answer.stderr
    assert answer.stderr.count("\n") == (1 if reason else 0)
    lines = [line.partition(" = ") for line in answer.stdout.splitlines()]
    return {name: value for name, _, value in lines}


def job(inputs: str = "cms:/f", *, waited_s: int = 0, **more: str) -> str:
    ad = {
        "ClusterId": "78251",
        "QDate": str(int(time.time()) - waited_s),
        "JobStatus": "1",
        "Requirements": '(TARGET.Arch == "X86_64")',
        "CachecastInputs": f'"{inputs}"',
        "Cmd": '"/bin/a \\"quoted\\" name"',
    } | more
    return "".join(f"{name} = {value}\n" for name, value in ad.items())


def test_translate_lets_a_job_wait_for_the_site_that_holds_its_input(server: PlacementServer) -> None:
    ad = run("translate", f"{ROUTE}\n------\n{job()}", server.url)
    assert ad["CachecastBest"] == '"EDGE"'
    assert ad["CachecastSites"] == '"EDGE,FAR"'
    assert ad["CachecastCachedFraction"] == "0.8"
    assert ad["CachecastReleased"] == "false"
    assert int(ad["CachecastReleaseAt"]) == int(ad["QDate"]) + 666  # what Eq. 1 saves
    assert ad["Requirements"].startswith('((TARGET.Arch == "X86_64")) && (CachecastReleased || time() >= ')
    assert "TARGET.CachecastSite =?= MY.CachecastBest" in ad["Rank"]
    assert ad["Cmd"] == '"/bin/a \\"quoted\\" name"'
    assert ad["ClusterId"] == "78251"


def matched(ad: dict[str, str], **more: str) -> dict[str, tuple[bool, float]]:
    """Which of three machines a job matches by HTCondor's own library, and how it ranks them."""
    text = "".join(f"{name} = {value}\n" for name, value in (ad | more).items())
    job = classad2.parseOne(text, classad2.ParserType.Old)
    answers = {}
    for name, site in (("near", '"EDGE"'), ("far", '"FAR"'), ("none", "undefined")):
        machine = classad2.ClassAd(f'[ Arch = "X86_64"; CachecastSite = {site}; Requirements = true ]')
        rank = classad2.ExprTree(ad["Rank"])
        answers[name] = (job.symmetricMatch(machine), rank.eval(job, machine))
    return answers


def test_a_job_matches_the_machines_of_its_best_site_until_it_is_released(server: PlacementServer) -> None:
    ad = run("translate", f"{ROUTE}\n------\n{job()}", server.url)
    best = {"near": (True, 1), "far": (False, 0), "none": (False, 0)}
    assert matched(ad) == best
    for released in ({"CachecastReleased": "true"}, {"CachecastReleaseAt": str(int(time.time()) - 1)}):
        assert matched(ad, **released) == {name: (True, rank) for name, (_, rank) in best.items()}
    assert not any(fits for fits, _ in matched(ad, Requirements='(TARGET.Arch == "ARM")').values())


def test_inputs_that_an_expression_gives_are_ranked(server: PlacementServer) -> None:
    text = job(CachecastInputs='strcat("cms:", Name)', Name='"/f"')
    assert run("translate", f"{ROUTE}\n------\n{text}", server.url)["CachecastBest"] == '"EDGE"'
    for value in ("undefined", "1 / 0", "(((", '"a" + "b"', "regexp("):
        ad = job(CachecastInputs=value)
        after = run("translate", f"{ROUTE}\n------\n{ad}", server.url, reason="it names no input")
        assert "CachecastBest" not in after


REASONS = {
    "no input": "job 78251.0 stays as it is: it names no input; submit it with +CachecastInputs",
    "service away": "http://127.0.0.1:9/score: <urlopen error [Errno 111] Connection refused>; check",
    "no site": "knows no site with a live cache",
}


@pytest.mark.parametrize("reason", REASONS)
def test_translate_leaves_alone_what_it_cannot_rank_and_says_why(
    server: PlacementServer, tmp_path: Path, reason: str
) -> None:
    text, reason_text = job("" if reason == "no input" else "cms:/f"), REASONS[reason]
    before = {name: value for name, _, value in (line.partition(" = ") for line in text.splitlines())}
    if reason == "no site":
        with threaded(tmp_path / "empty.db", time.time) as empty:
            after = run("translate", f"{ROUTE}\n------\n{text}", empty.url, reason=reason_text)
    else:
        url = "http://127.0.0.1:9" if reason == "service away" else server.url
        after = run("translate", f"{ROUTE}\n------\n{text}", url, reason=reason_text)
    assert after == before


OK = b"HTTP/1.0 200 OK\r\n"


@pytest.mark.parametrize("reply", [b"SSH-2.0-x\r\n", OK + b"content-length: 99\r\n\r\n{", OK + b"\r\n[]"])
def test_translate_leaves_a_job_alone_where_no_placement_service_answers(reply: bytes) -> None:
    class Answers(http_answers.Answers):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.wfile.write(reply)

    with http_answers.answering(Answers) as url:
        ad = run("translate", f"{ROUTE}\n------\n{job()}", url, reason=f"{url}/score: ")
    assert "CachecastBest" not in ad


def test_update_tells_what_changed_of_an_idle_job(server: PlacementServer) -> None:
    changed = run("update", job(waited_s=60), server.url)
    assert changed["CachecastBest"] == '"EDGE"'
    assert changed["CachecastReleased"] == "false"
    assert not {"Requirements", "ClusterId", "QDate"} & changed.keys()
    same = {name: value for name, value in changed.items() if name != "CachecastReleaseAt"}
    assert run("update", job(waited_s=60, **same), server.url).keys() <= {"CachecastReleaseAt"}
    assert run("update", job(JobStatus="2"), server.url, reason="JobStatus is 2, not 1 (idle)") == {}


def test_update_releases_a_job_that_has_waited_long_enough(server: PlacementServer) -> None:
    assert run("update", job(waited_s=1000), server.url)["CachecastReleased"] == "true"


def test_finalize_gives_the_users_job_its_ranking_and_what_its_copy_saw(server: PlacementServer) -> None:
    copy = run("translate", f"{ROUTE}\n------\n{job()}", server.url)
    copy |= {"ClusterId": "9", "MachineAttrCachecastSite0": '"EDGE"', "Owner": '"router"'}
    saw = {"ExitCode": "8021", "RemoteWallClockTime": "3600.0", "CumulativeRemoteUserCpu": "3100.0"}
    saw |= {"LastRemoteHost": '"slot1@wn7.edge.org"', "ChirpCMSSWReadBytes": "5000000000"}
    copy |= saw
    text = "".join(f"{name} = {value}\n" for name, value in copy.items())
    ad = run("finalize", f"{job()}------\n{text}", server.url)
    assert (ad["ClusterId"], ad["CachecastBest"]) == ("78251", '"EDGE"')
    assert ad["MachineAttrCachecastSite0"] == '"EDGE"'
    assert saw.items() <= ad.items()
    assert "Owner" not in ad
    assert ad["Requirements"] == '(TARGET.Arch == "X86_64")'
