"""The service's figures for Prometheus, computed when they are scraped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from features.common.times import parse_as_of
from prefetch.placement.connections import Gate
from prefetch.placement.front import Front
from prefetch.placement.service import Service
from prefetch.placement.synchroniser import Synchroniser


class ServiceMetrics:
    """A Prometheus collector over the service, its keeper, its front and its gate."""

    def __init__(self, service: Service, keeper: Synchroniser, front: Front, gate: Gate) -> None:
        self._service, self._keeper, self._front, self._gate = service, keeper, front, gate

    def collect(self) -> Iterator[Metric]:
        """All figures as of now."""
        yield self._requests()
        yield from self._servers()
        snapshot = self._service.snapshot
        for name, text, value in (
            ("datasets", "datasets with a placement", snapshot.dataset_keys.size),
            ("items", "files and datasets with known fractions", snapshot.item_keys.size),
            ("reassigned", "datasets placed by hand", len(self._service.reassigned)),
            ("unplanned_servers", "servers that no configuration names", len(self._service.unplanned())),
            ("connections", "connections held", len(self._gate)),
            ("silent_caches", "planned caches that are not alive", len(self._service.silent())),
            ("database_up", "1 if the last exchange with the database worked", self._keeper.fault is None),
            ("database_synced_seconds", "when it last did, since 1970", self._keeper.synced_at_s or 0.0),
        ):
            yield GaugeMetricFamily(f"cachecast_placement_{name}", text, value=float(value))
        if snapshot.as_of:
            yield GaugeMetricFamily(
                "cachecast_placement_as_of_seconds",
                "moment of the placements, since 1970; missing before the first refresh",
                value=float(parse_as_of(snapshot.as_of)),
            )
        yield _counters("database_faults", "exchanges that failed", "error", self._keeper.faults)
        yield _counters("connections_closed", "connections closed at a limit", "reason", self._gate.closed)
        yield CounterMetricFamily(
            "cachecast_placement_unchanged", "replies 304 of the hot routes", value=self._front.n_unchanged
        )

    def _requests(self) -> Metric:
        requests = CounterMetricFamily(
            "cachecast_placement_requests",
            "requests by route; the status of the two hot routes is not kept apart",
            labels=["route", "status"],
        )
        requests.add_metric(["serverRanges", ""], self._front.n_ranges)
        requests.add_metric(["ds", ""], self._front.n_datasets)
        for (route, status), n in sorted(self._front.others.items()):
            requests.add_metric([route, str(status)], n)
        return requests

    def _servers(self) -> Iterator[Metric]:
        known = GaugeMetricFamily("cachecast_placement_server_alive", "1: alive", labels=["site", "id"])
        seen = GaugeMetricFamily(
            "cachecast_placement_server_seen_seconds", "last heartbeat, since 1970", labels=["site", "id"]
        )
        for server, is_alive in self._service.servers():
            known.add_metric([server.site, server.id], float(is_alive))
            seen.add_metric([server.site, server.id], server.seen_at_s)
        yield from (known, seen)


def _counters(name: str, text: str, label: str, counts: Counter[str]) -> Metric:
    family = CounterMetricFamily(f"cachecast_placement_{name}", text, labels=[label])
    for key, n in sorted(counts.items()):
        family.add_metric([key], n)
    return family


def registry(metrics: ServiceMetrics) -> CollectorRegistry:
    """A registry of the metrics of the service and of its process."""
    made = CollectorRegistry()
    made.register(metrics)
    ProcessCollector(registry=made)
    return made
