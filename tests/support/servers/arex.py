"""A real A-REX of ARC with its web service, whose jobs are processes, and a client that submits to it."""

import contextlib
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from daemons import NoServer, end, free_ports, listens, open_folder, start, wait
from voms_site import Authority

_START = Path("/usr/share/arc/arc-arex-start")
_CONF = """\
[common]
x509_host_key = {folder}/host.key
x509_host_cert = {folder}/host.pem
x509_cert_dir = {folder}/certs
hostname = localhost
[authgroup:all]
all = yes
[mapping]
map_to_user = all nobody:nogroup
[lrms]
lrms = fork
[arex]
controldir = {folder}/control
sessiondir = {folder}/session
logfile = {folder}/arex.log
joblog = {folder}/jobs.log
pidfile = {folder}/arex.pid
wakeupperiod = 1
loglevel = VERBOSE
tmpdir = {folder}/tmp
{callout}
[arex/ws]
wsurl = https://localhost:{port}/arex
logfile = {folder}/ws.log
pidfile = {folder}/ws.pid
[arex/ws/jobs]
allowaccess = all
[infosys]
logfile = {folder}/infosys.log
[infosys/glue2]
[infosys/cluster]
[queue:fork]
"""


class Arex:
    """An A-REX: `control` is its control folder; its jobs run as `nobody`."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.control, self._url = folder, folder / "control", f"https://localhost:{port}/arex"
        authority = Authority(folder)
        authority.certify("host", "/DC=test/CN=localhost", "subjectAltName=DNS:localhost\n")
        authority.certify("user", "/DC=test/CN=ada")
        authority.proxy(folder / "proxy.pem", is_member=False)
        (folder / "home").mkdir()
        self.env = {"PATH": os.environ["PATH"], "HOME": f"{folder}/home", "TMPDIR": str(folder)}
        self.env |= {"X509_USER_PROXY": f"{folder}/proxy.pem", "X509_CERT_DIR": f"{folder}/certs"}
        self.env |= {"ARC_CONFIG": f"{folder}/arc.conf"}

    def submit(self, description: str) -> str:
        """The id of a job that is described in xRSL, once A-REX has accepted it."""
        file = self.folder / "job.xrsl"
        file.write_text(description)
        line = ["arcsub", "-C", self._url, "-T", "arcrest", "-Q", "NONE", "-t", "60", "-d", "INFO", str(file)]
        done = subprocess.run(line, env=self.env, capture_output=True, text=True, timeout=90, check=False)
        name = re.search(r"^Job submitted with jobid: \S+/(\w+)$", done.stdout, re.MULTILINE)
        assert name, f"{done.stdout}{done.stderr}\n{(self.folder / 'ws.log').read_text()[-4000:]}"
        return name[1]

    def has_begun(self, job: str) -> bool:
        """Whether a job is past the state in which hooks are called."""
        transitions = self.control / f"job.{job}.errors"
        return transitions.exists() and "ACCEPTED -> PREPARING" in transitions.read_text(errors="replace")


@contextlib.contextmanager
def running(callout: str) -> Iterator[Arex]:
    """An A-REX with a line of `[arex]`, `callout`, that sees to each job."""
    if not _START.exists():
        raise NoServer("there is no A-REX: install it with conf/deploy/system.sh arc")
    with open_folder() as folder, contextlib.ExitStack() as stack:
        (port,) = free_ports(1)
        site = Arex(folder, port)
        for each in ("control", "session"):
            (folder / each).mkdir()
        (folder / "tmp").mkdir()
        (folder / "tmp").chmod(0o1777)
        (folder / "arc.conf").write_text(_CONF.format(folder=folder, callout=callout, port=port))
        # It would make primes of its own, for minutes.
        line = ["openssl", "genpkey", "-genparam", "-algorithm", "DH", "-pkeyopt", "group:ffdhe2048"]
        subprocess.run([*line, "-out", folder / "control/dhparam.pem"], check=True, capture_output=True)
        daemons = []
        for command in (_START, _START.with_name("arc-arex-ws-start")):
            daemons.append(start([str(command), "-f"], folder / f"{command.name}.log", env=site.env))
            stack.callback(end, daemons[-1])
            stack.callback(daemons[-1].kill)  # asked to end, it waits for its transfers
        wait(lambda: (folder / "control/gm.fifo").exists() and listens(port), folder, *daemons)
        yield site
