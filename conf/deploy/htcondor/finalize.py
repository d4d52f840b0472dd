#!/usr/bin/env python3
"""<KEYWORD>_HOOK_JOB_FINALIZE: give the user's job what its sites were ranked by, and what its copy saw.

Standard input: the source job's ad, a line of dashes, the ad of its routed copy. Standard output: the source
job's ad. What the copy saw is where it ran, for how long, what it read and how it ended: cachecast reads that
from the history of the user's job. With `job_machine_attrs = CachecastSite` the copy knows its site.
"""

from cachecast_hook import give, given, read_ads, write_ad

KEPT = ("Cachecast", "MachineAttrCachecastSite", "MATCH_", "Chirp", "CumulativeRemote")
SAW = {
    *("JobStartDate", "JobCurrentStartDate", "CompletionDate", "NumJobStarts", "LastRemoteHost"),
    *("RemoteWallClockTime", "RemoteUserCpu", "RemoteSysCpu", "CpusProvisioned", "BytesRecvd", "BytesSent"),
    *("ExitCode", "ExitBySignal", "ExitSignal"),
}

source, copy, *_ = [*read_ads(given()), {}]
reported = {name: value for name, value in copy.items() if name in SAW or name.startswith(KEPT)}
give(write_ad(source | reported))
