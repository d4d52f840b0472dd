#!/usr/bin/env python3
"""<KEYWORD>_HOOK_UPDATE_JOB_INFO: rank the sites of a job that still waits anew; caches change meanwhile.

Standard input: the routed job's ad. Standard output: the attributes that changed, or nothing.
"""

from cachecast_hook import give, given, left_alone, read_ads, scored, write_ad

IDLE = "1"

job = read_ads(given())[0]
if job.get("JobStatus") == IDLE:
    changed = {name: value for name, value in scored(job).items() if job.get(name) != value}
    give(write_ad(changed))
else:
    left_alone(job, f"JobStatus is {job.get('JobStatus', 'not given')}, not {IDLE} (idle)")
