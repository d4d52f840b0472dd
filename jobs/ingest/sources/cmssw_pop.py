"""CMSSW popularity: what CMS's jobs tell of each file that they read (`…/cmssw_pop/raw/metric/`)."""

from __future__ import annotations

from jobs.ingest.sources import sql
from jobs.ingest.sources.cms import stream
from jobs.ingest.sources.site import Site


def query(site: Site) -> sql.Query:
    """Accesses of the records, see `cms.stream`. `site` is site_name.

    `fallback` (the job read over the WAN what its site did not have) shows in `origin`, and is not kept.
    """
    return stream(site, "cmssw_pop", site_column="site_name")
