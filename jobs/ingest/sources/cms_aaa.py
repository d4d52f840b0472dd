"""CMS AAA popularity: what XRootD servers tell of each read (HDFS `…/xrootd/{raw,enr}/gled/`)."""

from __future__ import annotations

from jobs.ingest.sources import sql
from jobs.ingest.sources.cms import stream
from jobs.ingest.sources.site import Site


def query(site: Site) -> sql.Query:
    """Accesses of the records, see `cms.stream`. `site` is the client's domain: no more is told."""
    return stream(site, "cms_aaa", site_column="client_domain")
