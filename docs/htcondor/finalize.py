#!/usr/bin/env python3
"""<KEYWORD>_HOOK_JOB_FINALIZE: keep in the user's job what its sites were ranked by, for the accounting.

Standard input: the source job's ad, a line of dashes, the ad of its routed copy. Standard output: the source
job's ad. With `job_machine_attrs = CachecastSite` the copy knows the site it ran at.
"""

import sys

from cachecast_hook import read_ads, write_ad

KEPT = ("Cachecast", "MachineAttrCachecastSite")

source, copy, *_ = [*read_ads(sys.stdin.read()), {}]
sys.stdout.write(write_ad(source | {name: value for name, value in copy.items() if name.startswith(KEPT)}))
