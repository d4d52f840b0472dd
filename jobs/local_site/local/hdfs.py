"""An HDFS of one NameNode and one DataNode on this machine, from the jars of conf/deploy/hdfs.sh."""

import json
import shutil
import subprocess
import urllib.request
from pathlib import Path

from features.common.errors import ServiceError
from features.common.files import user_cache
from jobs.ground.spark import java

NAME_NODE = "org.apache.hadoop.hdfs.server.namenode.NameNode"
DATA_NODE = "org.apache.hadoop.hdfs.server.datanode.DataNode"
JAVA = (
    *("-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true"),
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
)
_N_JARS = 7
_TOLD_CHARS = 500
LOG4J = """\
log4j.rootLogger=INFO,stderr
log4j.appender.stderr=org.apache.log4j.ConsoleAppender
log4j.appender.stderr.target=System.err
log4j.appender.stderr.layout=org.apache.log4j.PatternLayout
log4j.appender.stderr.layout.ConversionPattern=%d %p %c{1}: %m%n
"""


def jars(name: str, *, n: int, script: str) -> Path:
    """The folder of the `n` jars called `name`. Raises ServiceError if not all are there."""
    folder = user_cache(name)
    if len(list(folder.glob("*.jar"))) != n:
        raise ServiceError(f"{folder} does not hold the {n} jars: fetch them with conf/deploy/{script}")
    return folder


def prepared(folder: Path, *, rpc_port: int, http_port: int) -> list[str]:
    """The words before NAME_NODE or DATA_NODE that run it; data, logs and settings are in `folder`.

    A folder that holds no data is formatted. Raises ServiceError where Java or the jars are missing.
    """
    program, classes = java(), f"{folder}:{jars('hdfs', n=_N_JARS, script='hdfs.sh')}/*"
    _configure(folder, rpc_port, http_port)
    words = [program, *JAVA, f"-Dhadoop.log.dir={folder}", "-cp", classes]
    if not (folder / "nn").exists():
        _format(folder, words)
    return words


def is_up(http_port: int) -> bool:
    url = f"http://localhost:{http_port}/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"
    try:
        with urllib.request.urlopen(url, timeout=5) as reply:
            (state,) = json.load(reply)["beans"]
    except (OSError, ValueError):
        return False
    return bool(state["NumLiveDataNodes"] == 1 and state["FSState"] == "Operational")


def _format(folder: Path, words: list[str]) -> None:
    command = [*words, NAME_NODE, "-format"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        shutil.rmtree(folder / "nn", ignore_errors=True)  # else the next start would take it for formatted
        raise ServiceError(
            f"the NameNode cannot format its folder ({done.returncode}): {done.stdout[-_TOLD_CHARS:]}"
        )


def _configure(folder: Path, rpc_port: int, http_port: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "log4j.properties").write_text(LOG4J)
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
