"""A real HDFS on this machine: one NameNode and one DataNode, as `cachecast up --hdfs` runs them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from daemons import free_ports, start, up

from jobs.local_site.local.hdfs import DATA_NODE, NAME_NODE, is_up, prepared


@contextmanager
def running(folder: Path) -> Iterator[str]:
    """The URL of an empty HDFS that keeps its data and logs in `folder`; it ends with the block."""
    rpc_port, http_port = free_ports(2)
    words = prepared(folder, rpc_port=rpc_port, http_port=http_port)
    nodes = [
        start([*words, node], folder / f"{node.rpartition('.')[2]}.log") for node in (NAME_NODE, DATA_NODE)
    ]
    with up(lambda: is_up(http_port), folder, *nodes):
        yield f"hdfs://localhost:{rpc_port}"
