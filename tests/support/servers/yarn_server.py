"""A real YARN on this machine: a ResourceManager and a NodeManager, each a process of its own."""

import json
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import pyspark
from daemons import free_ports, start, up

from jobs.ground.spark import java
from jobs.local_site.local.hdfs import JAVA, LOG4J, jars

_SERVER = "org.apache.hadoop.yarn.server"
_MEMORY, _OVERHEAD_MB = "-Xmx256m", 1536


@contextmanager
def running(
    folder: Path, *, workers: int = 2, memory_mb: int = 1024, conf: Mapping[str, str] = MappingProxyType({})
) -> Iterator[dict[str, str]]:
    """The environment of commands whose Spark has so many executors with a heap of `memory_mb` on YARN.

    `conf`: more of Spark's own. Settings, data and logs are in `folder`; all ends with the block.
    """
    web_port = _configure(folder, total_mb=(workers + 1) * (memory_mb + _OVERHEAD_MB))
    classes = f"{folder}:{jars('hdfs', n=7, script='hdfs.sh')}/*:{jars('yarn', n=3, script='yarn.sh')}/*"
    words = [java(), *JAVA, _MEMORY, f"-Dhadoop.log.dir={folder}", f"-Dyarn.log.dir={folder}", "-cp", classes]
    servers = [
        start([*words, f"{_SERVER}.{name}"], folder / f"{name.rpartition('.')[2]}.log")
        for name in ("resourcemanager.ResourceManager", "nodemanager.NodeManager")
    ]
    spark = {
        **conf,
        "spark.executor.memory": f"{memory_mb}m",
        "spark.executor.instances": str(workers),
        "spark.executor.cores": "1",
        "spark.yarn.am.memory": "512m",
        "spark.yarn.jars": f"local:{Path(pyspark.__file__).parent / 'jars'}/*",
        "spark.yarn.stagingDir": (folder / "staging").as_uri(),
    }
    with up(lambda: _is_up(web_port), folder, *servers):
        yield {
            "HADOOP_CONF_DIR": str(folder),
            "CACHECAST_SPARK__MASTER": "yarn",
            "CACHECAST_SPARK__CONF": as_toml(spark),
        }


def as_toml(conf: Mapping[str, str]) -> str:
    """Spark's settings as the environment takes them."""
    pairs = ", ".join(f'"{name}" = "{value}"' for name, value in conf.items())
    return f"{{ {pairs} }}"


def _configure(folder: Path, *, total_mb: int) -> int:
    """Write the settings; the port of the ResourceManager's pages."""
    ports = dict(zip(_ADDRESSES, free_ports(len(_ADDRESSES)), strict=True))
    settings = {
        "yarn.resourcemanager.hostname": "127.0.0.1",
        **{f"yarn.{name}": f"127.0.0.1:{port}" for name, port in ports.items()},
        "yarn.resourcemanager.scheduler.class": f"{_SERVER}.resourcemanager.scheduler.fifo.FifoScheduler",
        "yarn.nodemanager.hostname": "127.0.0.1",
        "yarn.nodemanager.local-dirs": str(folder / "local"),
        "yarn.nodemanager.log-dirs": str(folder / "containers"),
        "yarn.nodemanager.resource.memory-mb": str(total_mb),
        "yarn.nodemanager.resource.cpu-vcores": "16",
        "yarn.nodemanager.vmem-check-enabled": "false",
        "yarn.nodemanager.disk-health-checker.enable": "false",
        "yarn.scheduler.minimum-allocation-mb": "256",
    }
    for file, of in (("yarn-site", settings), ("core-site", {"fs.defaultFS": "file:///"})):
        rows = [f"<name>{name}</name><value>{value}</value>" for name, value in of.items()]
        properties = "".join(f"<property>{row}</property>" for row in rows)
        (folder / f"{file}.xml").write_text(f"<configuration>{properties}</configuration>")
    (folder / "log4j.properties").write_text(LOG4J)
    return ports["resourcemanager.webapp.address"]


_ADDRESSES = (
    "resourcemanager.address",
    "resourcemanager.scheduler.address",
    "resourcemanager.resource-tracker.address",
    "resourcemanager.admin.address",
    "resourcemanager.webapp.address",
    "nodemanager.address",
    "nodemanager.localizer.address",
    "nodemanager.webapp.address",
)


def _is_up(web_port: int) -> bool:
    url = f"http://127.0.0.1:{web_port}/ws/v1/cluster/metrics"
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(json.load(answer)["clusterMetrics"]["activeNodes"] == 1)
    except (OSError, ValueError):
        return False
