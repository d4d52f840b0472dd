"""The folder of a local deployment: its settings, secrets and ports, made once and kept."""

import dataclasses
import json
import secrets
from contextlib import closing
from pathlib import Path

from features.common.errors import InputError
from features.common.files import write
from jobs.ground.settings.layers import SECRETS, toml_text
from jobs.local_site.local.daemon import plain_folder
from jobs.local_site.local.process import free_ports
from prefetch.journal.journal import Journal

CACHE = "cache"
CAPACITY = "2GB"
_MARKER = ".cachecast-local"
_PORTS = (
    *("mlflow", "placement", "collector", "origin", "cache", "airflow"),
    *("airflow_worker_logs", "airflow_triggerer_logs", "hdfs", "hdfs_web"),
)
_SECRETS = ("placement-token", "airflow-password", "airflow-jwt", "salt")
FOLDERS = ("traces", "files", "gstream")  # of Rucio traces, a files catalogue, the collector's captures
_BASE = """\
# Written by `cachecast up` the first time; edit it, it is kept.
[tables]
root = {tables}

[spark]
driver_memory = "2g"

[mlflow]
uri = "http://127.0.0.1:{mlflow}"
serve = ["champion", "candidate"]  # plans to look at before a model is promoted; pushes wait for that

[training]
spool = "{out}/trainings"

[push]
journal = "{out}/journal.db"

[steward]
state = "{out}/steward"

[serve]
port = {placement}
database = "{out}/placement.db"
token_file = "{out}/secrets/placement-token"

[airflow]
url = "http://127.0.0.1:{airflow}"
pull = {{ rucio_traces = "{out}/traces/", rucio_files = "{out}/files/", xcache_gstream = "{out}/gstream/" }}
reports = "{out}/reports"
"""
_XCACHE = """\
name = "{name}"  # as the server calls itself
kind = "xcache"
url = "root://127.0.0.1:{port}"
capacity = "{capacity}"
namespace = "{out}/xrootd/ns"
gstream = "{out}/gstream"
steward = true
"""
_FOLDER = """\
name = "{name}"
kind = "directory"  # no XRootD server is installed here
url = "{out}/cache"
origin = "{out}/origin"
capacity = "{capacity}"
steward = true
"""


@dataclasses.dataclass(frozen=True)
class LocalSite:
    """A deployment's folder, and the ports that its services have for good."""

    out: Path
    ports: dict[str, int]

    @property
    def conf(self) -> Path:
        return self.out / "conf"

    @property
    def run(self) -> Path:
        return self.out / "run"

    @property
    def hdfs(self) -> Path:
        return self.out / "hdfs"

    def secret(self, name: str) -> str:
        """One of its secrets; the file's mode is 0600."""
        return (self.out / "secrets" / name).read_text().strip()

    def secret_file(self, name: str) -> Path:
        return self.out / "secrets" / name


def opened(out: Path, *, tables: str | None, xrootd: bool, hdfs: bool = False) -> LocalSite:
    """The deployment at `out`, made if it is not there. Raises InputError rather than take over a folder.

    `tables`, or an HDFS of its own, is for the first time: later its tables stay where they are.
    """
    out = plain_folder(out.resolve()) if xrootd else out.resolve()
    if out.exists() and any(out.iterdir()) and not (out / _MARKER).exists():
        raise InputError(f"{out} is not empty and holds no deployment; give another --out")
    if not out.exists():
        out.mkdir(parents=True)
        out.chmod(0o751)  # XRootD's own user has to reach its folder below; the others are closed to it
    for folder in ("conf/caches", "run", "secrets", "mlflow", "airflow", "reports", *FOLDERS):
        (out / folder).mkdir(parents=True, exist_ok=True)
    (out / _MARKER).touch()
    for name in _SECRETS:
        _write_once(out / "secrets" / name, secrets.token_hex(32))
    site = LocalSite(out, _ports(out / "ports.json"))
    if hdfs and not (site.conf / "base.toml").exists():
        site.hdfs.mkdir(exist_ok=True)  # one that was interrupted may have left it
        tables = f"hdfs://localhost:{site.ports['hdfs']}/tables"
    with closing(Journal(f"{out}/journal.db")) as journal:
        journal.make()  # without one the steward would know of no pins, and evict nothing
    values = {"out": out, "tables": toml_text(tables or f"{out}/tables"), **site.ports}
    _write_once(site.conf / "base.toml", _BASE.format(**values))
    _write_once(site.conf / SECRETS, f'[users]\nsalt = "{site.secret("salt")}"\n')
    if not xrootd:
        (out / "origin").mkdir(exist_ok=True)
        (out / "cache").mkdir(exist_ok=True)
    cache = (_XCACHE if xrootd else _FOLDER).format(
        name=CACHE, out=out, capacity=CAPACITY, port=site.ports["cache"]
    )
    _write_once(site.conf / "caches" / f"{CACHE}.toml", cache)
    return site


def deployment_at(out: Path) -> LocalSite:
    """The deployment at `out`. Raises InputError if there is none."""
    if not (out / _MARKER).exists():
        raise InputError(f"{out} holds no deployment; start one with cachecast up --out {out}")
    return LocalSite(out.resolve(), _ports(out / "ports.json"))


def _ports(file: Path) -> dict[str, int]:
    if not file.exists():
        write(file, json.dumps(dict(zip(_PORTS, free_ports(len(_PORTS)), strict=True)), indent=1))
    ports: dict[str, int] = json.loads(file.read_text())
    return ports


def _write_once(file: Path, text: str) -> None:
    if not file.exists():
        write(file, text, mode=0o600)
