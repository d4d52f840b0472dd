"""The hook that prefills before a batch system has the job, fed as job routers and A-REX feed it."""

import fcntl
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hung_mount import hung_mount
from waiting import eventually

from jobs.loop.push.prefill import PrefillRequest, with_described

HOOK = Path(__file__).parents[4] / "conf/deploy/htcondor/prefill.py"
AD = 'ClusterId = 7\nEnvironment = "T=s3cret"\nCachecastInputs = "cms:/store/mc/f.root, /A/B-v1/AOD"\n'
XRSL = '&(executable=x)(inputFiles=("f" "root://o//store/f.root"))'
COMMAND = """#!{python}
import json, sys, time
time.sleep({seconds})
open("{calls}", "a").write(json.dumps([sys.argv[1:], open(sys.argv[5]).read()]) + "\\n")
sys.exit({code})
"""


class Site:
    """A spool, and a command in place of `cachecast` that notes what it is given."""

    def __init__(self, folder: Path, *, seconds: float = 0, code: int = 0) -> None:
        self.calls, self.spool, command = folder / "calls", folder / "spool", folder / "command"
        values = {"python": sys.executable, "calls": self.calls, "seconds": seconds, "code": code}
        command.write_text(COMMAND.format(**values))
        command.chmod(0o755)
        self.env = {"PATH": os.environ["PATH"], "CACHECAST_SPOOL": str(self.spool), "CACHECAST_CACHE": "xc1"}
        self.env |= {"CACHECAST_COMMAND": str(command)}

    def hook(self, *words: str, text: str = "", **env: str) -> tuple[str, str]:
        line = [sys.executable, str(HOOK), *words]
        env = self.env | env
        answer = subprocess.run(
            line, input=text, env=env, capture_output=True, text=True, timeout=10, check=True
        )
        return answer.stdout, answer.stderr

    def called(self, n: int) -> list[list[object]]:
        def have_come() -> bool:
            is_over = not list(self.spool.glob("*.new"))
            return is_over and len(self.calls.read_text().splitlines() if self.calls.exists() else []) >= n

        assert eventually(have_come, 20), f"{n} calls did not come: {list(self.spool.iterdir())}"
        return [json.loads(line) for line in self.calls.read_text().splitlines()]


def test_a_routed_job_is_prefilled_once_and_its_ad_is_what_it_was(tmp_path: Path) -> None:
    site = Site(tmp_path)
    for number in range(5):
        ad = AD.replace("= 7", f"= {number}")
        assert site.hook(text=f'[ Name = "r" ]\n------\n{ad}') == (ad, "")
    ((words, described),) = site.called(1)
    assert isinstance(words, list) and words[:4] == ["prefill", "--cache", "xc1", "--described"]
    (tmp_path / "ad").write_text(str(described))
    asked = with_described(PrefillRequest([], []), tmp_path / "ad", int(time.time()))
    assert (list(asked.datasets), list(asked.files)) == (["/A/B-v1/AOD"], ["cms:/store/mc/f.root"])
    assert "s3cret" not in str(described)


@pytest.mark.parametrize("place", ["job.abcdef1.description", "jobs/abc/def/1/description"])
def test_a_job_of_arc_is_prefilled_by_its_description(tmp_path: Path, place: str) -> None:
    site, path = Site(tmp_path), tmp_path / "control" / place
    path.parent.mkdir(parents=True)
    path.write_text(XRSL)
    assert site.hook(str(tmp_path / "control"), "abcdef1") == ("", "")
    ((_, described),) = site.called(1)
    assert described == XRSL


def test_what_arex_adds_to_equal_inputs_asks_for_them_once(tmp_path: Path) -> None:
    site, uri = Site(tmp_path, seconds=0.2), "<a:URI>root://o//store/f.root</a:URI>"
    other = uri.replace("f.root", "g.root")
    for number, (source, owner) in enumerate([(uri, "ada"), (uri, "ada"), (uri, "eve"), (other, "ada")]):
        staged = f"<a:Source>{source}<a:DelegationID>d{number}</a:DelegationID></a:Source>"
        written = f"<a:OutputFile>root://o//store/out{number}.root</a:OutputFile>"
        text = f"<a:ActivityDescription><a:Name>n{number}</a:Name>{staged}{written}</a:ActivityDescription>"
        (tmp_path / f"job.n{number}.description").write_text(text)
        (tmp_path / f"job.n{number}.local").write_text(f"lrms=fork\nsubject=/DC=test/CN={owner}\n")
        site.hook(str(tmp_path), f"n{number}")
    assert len(site.called(3)) == 3, "eve cannot make ada's inputs look as if they had been asked for"


def test_inputs_that_differ_within_a_name_are_each_asked_for(tmp_path: Path) -> None:
    site = Site(tmp_path)
    names = [
        "/store/f(1).root",
        "/store/f(2).root",
        "/store/run=1.root",
        "/store/run=2.root",
        "bare1",
        "bare2",
    ]
    for name in names:
        site.hook(text="r\n------\n" + AD.replace("cms:/store/mc/f.root", name))
    text = str(site.called(len(names)))
    assert all(name in text for name in names)


def test_nobody_writes_another_owner_into_what_arex_keeps(tmp_path: Path) -> None:
    site, forged = Site(tmp_path), "subject=/CN=ada\n"
    for number, before in enumerate(("", f"args=x\\\n{forged}")):
        (tmp_path / f"job.n{number}.description").write_text(XRSL)
        (tmp_path / f"job.n{number}.local").write_text(f"{before}subject=/CN=eve\njobname=x\n{forged}")
        assert site.hook(str(tmp_path), f"n{number}") == ("", "")
        site.called(1)
    assert len(list(site.spool.glob("*.done"))) == 1, "both are eve's"


def test_what_cannot_be_handed_over_keeps_no_process_busy(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.spool.mkdir()
    (site.spool / "x.new").symlink_to(tmp_path / "none")
    site.hook("--hand-over")  # which ends
    site.spool.chmod(0o777)
    assert "chmod o-w" in site.hook(text="r\n------\n" + AD.replace("f.root", "g.root"))[1]


def test_nobody_fills_the_spool_against_others_and_owners_take_turns(tmp_path: Path) -> None:
    site = Site(tmp_path, seconds=0.1)
    site.hook(text=f'r\n------\n{AD}Owner = "eve"\n')
    site.called(1)
    (name,) = (path.stem for path in site.spool.glob("*.done"))
    eves = [site.spool / f"{n:064}-{name.rpartition('-')[2]}.new" for n in range(1000)]
    with (site.spool / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # as if one were handed over
        for number, path in enumerate(eves):
            path.write_text(str(number))
            os.utime(path, (time.time() - 5000 + number,) * 2)
        more = AD.replace("f.root", "g.root")
        assert "1000 jobs wait" in site.hook(text=f'r\n------\n{more}Owner = "eve"\n')[1]
        assert site.hook(text=f'r\n------\n{more}Owner = "ada"\n')[1] == ""
    assert [path.exists() for path in (eves[0], eves[-2], eves[-1])] == [True, True, False], (
        "her last is gone"
    )
    assert site.hook(text=f'r\n------\n{more.replace("g", "h")}Owner = "ada"\n')[1] == ""
    assert eventually(lambda: len(site.calls.read_text().splitlines()) >= 5, 30)
    for path in site.spool.glob("*.new"):
        path.unlink(missing_ok=True)
    later = [str(json.loads(line)[1]) for line in site.calls.read_text().splitlines()[1:5]]
    assert sorted("root" in described for described in later) == [False, False, True, True], later


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
def test_a_spool_that_hangs_holds_no_job_up(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.spool.mkdir()
    with hung_mount(site.spool):
        answer, said = site.hook(text=f"r\n------\n{AD}")
    assert answer == AD and "does not answer within 3 s" in said and said.count("\n") == 1


def test_what_cannot_be_prefilled_is_left_alone_and_said(tmp_path: Path) -> None:
    site = Site(tmp_path)
    for text, env, why in (
        ("ClusterId = 7\n", {}, "it names no input"),
        (AD, {"CACHECAST_SPOOL": "/proc/none"}, "/proc/none"),
    ):
        answer, said = site.hook(text=f"r\n------\n{text}", **env)
        assert answer == text and why in said and said.count("\n") == 1
    for job in ("../../etc/passwd", "none"):
        assert "it names no input" in site.hook(str(tmp_path), job)[1]
    del site.env["CACHECAST_CACHE"]
    assert "set CACHECAST_CACHE" in site.hook(text=f"r\n------\n{AD}")[1]


def test_an_ad_goes_by_byte_for_byte_whatever_its_strings_hold(tmp_path: Path) -> None:
    site, owner = Site(tmp_path), b'Owner = "eve"\n'
    for end in (b"\r", b"\v", b"\x1c", b"\xe2\x80\xa8", b"\xff"):
        words = b'x"' + end + b'Owner = "root"' + end + b"------" + end + b'Owner = "root'
        ad = owner + b'Arguments = "' + words + b'"\ncachecastinputs = "/store/' + end + b'.root"\n'
        for hook in ("prefill.py", "translate.py"):
            line = [sys.executable, str(HOOK.with_name(hook))]
            env = site.env | {"CACHECAST_URL": "http://localhost:1", "PYTHONIOENCODING": "utf-8:strict"}
            done = subprocess.run(line, input=b"r\n------\n" + ad, env=env, capture_output=True, check=True)
            assert done.stdout == ad and b"Traceback" not in done.stderr
    assert len(site.called(5)) == 5


def test_what_was_handed_over_is_not_kept(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.hook(text=f"r\n------\n{AD}")
    site.called(1)
    (done,) = site.spool.glob("*.done")
    assert eventually(lambda: done.stat().st_size == 0, 10)
    assert oct(done.stat().st_mode)[-3:] == "600"
    os.utime(done, (time.time() + 10 * 86400,) * 2)  # by a clock that was ahead
    site.hook(text=f"r\n------\n{AD}")
    assert len(site.called(2)) == 2
    assert "larger than 1 MiB" in site.hook(text=f'r\n------\nArgs = "{"x" * 2**20}"\n')[1]


def test_what_killed_hooks_have_left_goes(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.spool.mkdir()
    name, hour_ago = "a" * 64, (time.time() - 7200,) * 2
    left = {f"{name}.17": True, f"{name}.18": False, f"{name}.done": False}
    for part, is_old in left.items():
        (site.spool / part).write_text("T=s3cret")
        if is_old:
            os.utime(site.spool / part, hour_ago)
    site.hook(text=f"r\n------\n{AD}")
    site.called(1)
    assert {part for part in left if (site.spool / part).exists()} == {f"{name}.18", f"{name}.done"}
    assert not (site.spool / f"{name}.done").stat().st_size, "a description may hold a secret"


def test_a_command_that_fails_is_tried_once_and_hinders_no_other_job(tmp_path: Path) -> None:
    site = Site(tmp_path, seconds=0.5, code=1)
    began = time.monotonic()
    for number in range(3):
        site.hook(text="r\n------\n" + AD.replace("f.root", f"{number}.root"))
    assert time.monotonic() - began < 5
    assert len(site.called(3)) == 3
    site.env["CACHECAST_COMMAND"] = "/none"
    site.hook(text="r\n------\n" + AD)
    assert eventually(lambda: "No such file" in (site.spool / "log").read_text(), 10)
    assert "/none" in (site.spool / "log").read_text()


def test_jobs_without_end_fill_no_disk(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.spool.mkdir()
    for number in range(1000):
        (site.spool / f"{number}.new").touch()
    assert "1000 jobs wait" in site.hook(text=f"r\n------\n{AD}")[1]
