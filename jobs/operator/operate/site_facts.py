"""What `init` asks for, as options of the command; apart from its job, so that help loads nothing else."""

import dataclasses
from typing import Annotated


@dataclasses.dataclass(frozen=True)
class NewSite:
    """What is known of a new site; an empty text means that it has none."""

    cache: Annotated[str, "address of a cache: root://HOST:PORT, or a folder; empty: none yet"] = ""
    name: Annotated[str, "its name; defaults to that of its host or folder"] = ""
    capacity: Annotated[str, "its capacity, for example 50TB"] = ""
    origin: Annotated[str, "folder that the files of a cache in a folder are fetched from"] = ""
    namespace: Annotated[str, "folder of an XCache's names (oss.localroot), if this host sees it"] = ""
    gstream: Annotated[str, "folder where `cachecast collect` keeps what an XCache reports"] = ""
    watermarks: Annotated[str, "its low and high one (pfc.diskusage), for example 0.90,0.95"] = ""
    steward: Annotated[bool, "a steward will run beside it"] = False
    source: Annotated[str, "kind of access records, see docs/pull.md"] = "rucio_traces"
    records: Annotated[str, "path or glob of the access records; empty: none yet"] = ""
    rucio: Annotated[str, "URL of a Rucio server; empty: none"] = ""
    rucio_account: Annotated[str, "account there; empty: the identity's default"] = ""
    tables: Annotated[str, "root of the tables; defaults to a folder beside the settings"] = ""
