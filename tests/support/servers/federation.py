"""A real redirector (`xrootd` and `cmsd`), its XCaches and their origin, on loopback."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from daemons import free_ports, listens, open_folder
from waiting import eventually

from features.common.errors import ServiceError, TargetUnavailable
from jobs.local_site.local import xrootd
from jobs.local_site.local.daemon import Daemon, folder_for_all, hand_over
from prefetch.xcache.redirector import Redirector

# The defaults wait for 90 s at the start, 5 s for a look-up, and 10 min for a node that is lost.
_DELAYS = "cms.delay startup 1 lookup 1 servers 1 qdl 1 drop 2 discard 2\n"
_LOGIN_S = 120


def _exported(how: str) -> str:
    return f"all.export /store {how}\nall.export /atlas {how}\n"


class Cmsd(Daemon):
    """A `cmsd`: it answers when it listens (a manager), or when its log says so."""

    def __init__(self, role: str, folder: Path, port: int, config: str) -> None:
        super().__init__(role, folder, port, config)
        self.log = folder / f"{role}.cmsd"

    def words(self, *, with_parent: bool) -> list[str]:
        """As of a Daemon, of the other program."""
        words = super().words(with_parent=with_parent)
        words[words.index("-c") - 1] = "cmsd"
        return words

    def answers(self) -> bool:
        """Whether it listens, or is initialized."""
        if self.port:
            return listens(self.port)
        return self.tells("initialization completed")

    def tells(self, words: str) -> bool:
        """Whether its log has `words`."""
        return self.log.exists() and words in self.log.read_text(errors="replace")


class Node:
    """One server with its cmsd."""

    def __init__(self, folder: Path, name: str, port: int, config: str, cmsd_port: int = 0) -> None:
        self.name, self.port, self.namespace = name, port, folder / name
        self.server = Daemon(name, folder, port, config)
        self.cmsd = Cmsd(name, folder, cmsd_port, config)

    @property
    def url(self) -> str:
        """Its own address."""
        return f"root://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start both; raises ServiceError unless its manager knows the cmsd."""
        self.cmsd.log.unlink(missing_ok=True)
        self.cmsd.start()
        self.server.start()
        if not eventually(lambda: self.cmsd.tells("ogged in"), _LOGIN_S):
            raise ServiceError(f"{self.name} is not logged in: {self.cmsd.complaints()}")

    def stop(self) -> None:
        """End both."""
        self.server.stop()
        self.cmsd.stop()

    def holds(self) -> set[str]:
        """The files below its namespace, without their records."""
        return {file.name for file in self.namespace.rglob("*.root")}


class Federation:
    """A redirector, and the nodes that were added to it; files are at the origin below `root`."""

    def __init__(self, folder: Path) -> None:
        self.root, self._folder = folder / "origin", folder
        for path in (folder, self.root / "store"):
            folder_for_all(path)
        origin, redirector, self._manager = free_ports(3)
        paths = f"all.adminpath {folder}/admin\nall.pidpath {folder}/admin\n"
        text = f"xrd.port {origin}\n{_exported('r/o')}oss.localroot {self.root}\n{paths}"
        self.origin = Daemon("origin", folder, origin, text)
        self._common = f"all.manager localhost:{self._manager}\n{paths}{_DELAYS}"
        text = (
            f"xrd.port {redirector}\nif exec cmsd\nxrd.port {self._manager}\nfi\nall.role manager\n"
            f"{_exported('r/o stage')}{self._common}"
        )
        self.redirector = Node(folder, "redirector", redirector, text, self._manager)
        self.nodes = dict[str, Node]()
        hand_over(folder)

    def add(self, name: str) -> Node:
        """A node more, not started yet. Its cmsd looks at the disk, not at the origin."""
        (port,) = free_ports(1)
        folder_for_all(self._folder / name)
        text = (
            f"xrd.port {port}\nall.role server\n{_exported('r/o stage')}all.export /xrdpfc_command\n"
            f"oss.localroot {self._folder}/{name}\nif exec xrootd\nofs.osslib libXrdPss.so\nfi\n"
            f"pss.cachelib libXrdPfc.so\npss.origin 127.0.0.1:{self.origin.port}\npfc.blocksize 128k\n"
            f"pfc.ram 1g\npfc.prefetch 0\npfc.allow_xrdpfc_command\n{self._common}"
        )
        node = Node(self._folder, name, port, text)
        hand_over(self._folder)
        self.nodes[name] = node
        return node

    def put(self, lfn: str, content: bytes) -> None:
        """Write a file at the origin."""
        path = self.root / lfn.lstrip("/")
        folder_for_all(path.parent)
        path.write_bytes(content)
        path.chmod(0o644)

    def seen_by(self, *names: str) -> Redirector:
        """The redirector, as who configures the nodes called `names` asks it."""
        urls = {name: [f"127.0.0.1:{self.nodes[name].port}"] for name in names}
        return Redirector(self.redirector.url, urls)

    def settings(self, names: Sequence[str], folder: Path, more: str = "") -> str:
        """The nodes called `names` as caches, with a journal in `folder`; `more`: lines of each cache."""
        caches = "".join(
            f'[caches.{node.name}]\nname = "{node.name}"\nkind = "xcache"\nsite = "EDGE"\ncapacity = "1GB"\n'
            f'url = "{node.url}"\nnamespace = "{node.namespace}"\n'
            f'redirector = "{self.redirector.url}"\n{more}'
            for node in map(self.nodes.__getitem__, names)
        )
        journal = f'[push]\njournal = "{folder}/journal.db"\nretry_after = "0s"\n'
        return f"[plan]\ncontrol_share = 0.0\n{journal}{caches}"


def serving(redirector: Redirector) -> frozenset[str]:
    """The names of the nodes that the redirector serves; none while it does not answer."""
    try:
        return redirector.serving()
    except TargetUnavailable:
        return frozenset()


@contextlib.contextmanager
def running(names: Sequence[str]) -> Iterator[Federation]:
    """A running federation of nodes called `names`. Raises ServiceError."""
    if (fault := xrootd.available()) is not None:
        raise ServiceError(fault)
    with open_folder() as folder, contextlib.ExitStack() as stack:
        site = Federation(folder / "f")
        parts: list[Daemon | Node] = [site.origin, site.redirector, *map(site.add, names)]
        for part in parts:
            stack.callback(part.stop)
            part.start()
        yield site
