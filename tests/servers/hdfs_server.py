"""A real HDFS on this machine: one NameNode and one DataNode, from the jars of conf/deploy/hdfs.sh."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from daemons import NoServer, end, free_ports, start, wait

_CLASSES = "org.apache.hadoop.hdfs.server"
_JAVA = (
    *("-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true"),
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
)
_N_JARS = 7
_LOG4J = """\
log4j.rootLogger=INFO,stderr
log4j.appender.stderr=org.apache.log4j.ConsoleAppender
log4j.appender.stderr.target=System.err
log4j.appender.stderr.layout=org.apache.log4j.PatternLayout
log4j.appender.stderr.layout.ConversionPattern=%d %p %c{1}: %m%n
"""


@contextmanager
def running(folder: Path) -> Iterator[str]:
    """The URL of an empty HDFS that keeps its data and logs in `folder`; it ends with the block."""
    java, jars = shutil.which("java"), _jars()
    if java is None:
        raise NoServer("there is no java: install it with conf/deploy/system.sh core")
    rpc_port, http_port = free_ports(2)
    _configure(folder, rpc_port, http_port)
    command = [java, *_JAVA, f"-Dhadoop.log.dir={folder}", "-cp", f"{folder}:{jars}/*"]
    with (folder / "format.log").open("wb") as log:
        name_node = f"{_CLASSES}.namenode.NameNode"
        made = subprocess.run([*command, name_node, "-format"], stdout=log, stderr=log, check=False)
    if made.returncode:
        told = (folder / "format.log").read_text(errors="replace")[-2000:]
        raise NoServer(f"the NameNode cannot format its folder ({made.returncode}): {told}")
    nodes = [
        start([*command, name], folder / f"{name.rpartition('.')[2]}.log")
        for name in (name_node, f"{_CLASSES}.datanode.DataNode")
    ]
    try:
        wait(lambda: _is_up(http_port), folder, *nodes)
        yield f"hdfs://localhost:{rpc_port}"
    finally:
        end(*nodes)


def _jars() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "cachecast" / "hdfs"
    if len(list(folder.glob("*.jar"))) != _N_JARS:
        raise NoServer(f"{folder} does not hold the {_N_JARS} jars: fetch them with conf/deploy/hdfs.sh")
    return folder


def _configure(folder: Path, rpc_port: int, http_port: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "log4j.properties").write_text(_LOG4J)
    _xml(folder / "core-site.xml", {"fs.defaultFS": f"hdfs://localhost:{rpc_port}"})
    settings = {
        "dfs.replication": "1",
        "dfs.namenode.name.dir": (folder / "nn").as_uri(),
        "dfs.datanode.data.dir": (folder / "dn").as_uri(),
        "dfs.namenode.rpc-address": f"localhost:{rpc_port}",
        "dfs.namenode.http-address": f"localhost:{http_port}",
        "dfs.datanode.address": "localhost:0",
        "dfs.datanode.http.address": "localhost:0",
        "dfs.datanode.ipc.address": "localhost:0",
        "dfs.datanode.hostname": "localhost",
        "dfs.namenode.datanode.registration.ip-hostname-check": "false",
        "dfs.namenode.safemode.extension": "0",
        "dfs.datanode.du.reserved": "0",
        # Its handlers and its edits, reserved for a large cluster, would cost most of the start.
        "dfs.namenode.handler.count": "4",
        "dfs.datanode.handler.count": "4",
        "dfs.namenode.edits.noeditlogchannelflush": "true",
        # A full disk on a developer's machine is not our question.
        "dfs.namenode.resource.du.reserved": "0",
    }
    _xml(folder / "hdfs-site.xml", settings)


def _xml(path: Path, settings: dict[str, str]) -> None:
    rows = "".join(f"<property><name>{k}</name><value>{v}</value></property>\n" for k, v in settings.items())
    path.write_text(f"<configuration>\n{rows}</configuration>\n")


def _is_up(http_port: int) -> bool:
    url = f"http://localhost:{http_port}/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"
    try:
        with urllib.request.urlopen(url, timeout=5) as reply:
            (state,) = json.load(reply)["beans"]
    except (OSError, ValueError):
        return False
    return bool(state["NumLiveDataNodes"] == 1 and state["FSState"] == "Operational")
