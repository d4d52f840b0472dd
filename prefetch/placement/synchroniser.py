"""Keeps memory and database in step: stores heartbeats, reads what is new, and reports when it cannot."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from features.common.errors import CachecastError, InputError
from prefetch.placement.database import Pending, PlacementTables, Stored
from prefetch.placement.service import Service
from prefetch.placement.snapshot import Snapshot, load

TICK_S = 0.5


class Synchroniser:
    """Keeps a service and its database in step, every `every_s`.

    `faults`: exchanges that failed, by the type of the error.
    """

    def __init__(self, service: Service, database: PlacementTables, *, every_s: float) -> None:
        self._service, self._database, self._every_s = service, database, every_s
        self._one_at_a_time = asyncio.Lock()
        self._fault: str | None = "the placement database was not read yet"
        self._damage: str | None = None
        self._damaged_refresh = 0
        self._tasks: list[asyncio.Task[None]] = []
        self.faults: Counter[str] = Counter()
        self.synced_at_s: float | None = None

    @property
    def fault(self) -> str | None:
        """Why memory and database are out of step; None: they are not."""
        ended = any(task.done() for task in self._tasks)
        return "the service's upkeep has ended; restart it" if ended else self._fault

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Restore what is stored, and keep in step until the block ends; then store the rest."""
        await self.sync()
        self._tasks = [asyncio.create_task(self._tick()), asyncio.create_task(self._sync())]
        try:
            yield
        finally:
            for task in self._tasks:
                task.cancel()
            for task in self._tasks:
                with contextlib.suppress(asyncio.CancelledError):
                    await task
            await self.sync()
            self._database.close()

    async def sync(self) -> None:
        """Store and read once. A failure is reported in `fault`, counted in `faults`, and loses nothing."""
        async with self._one_at_a_time:
            pending = self._service.pending()
            try:
                # The damaged refresh is not asked for again: reading it again mends nothing.
                newer = dataclasses.replace(pending, after=max(pending.after, self._damaged_refresh))
                stored, snapshot = await asyncio.to_thread(self._exchange, newer)
            except asyncio.CancelledError:
                self._service.give_back(pending)
                raise
            except Exception as error:  # noqa: BLE001  whatever fails, answers go on; it is told and counted
                self._service.give_back(pending)
                kind = type(error).__name__
                self._fault = str(error) if isinstance(error, CachecastError) else f"storing failed ({kind})"
                self.faults[kind] += 1
                return
            self._service.take(stored, snapshot)
            self._fault, self.synced_at_s = self._damage, self._service.now_s()

    async def change(
        self, store: Callable[[PlacementTables], None], follow: Callable[[Service], None]
    ) -> None:
        """Make an operator's change: first in the database, then in memory. Raises ServiceError."""
        async with self._one_at_a_time:
            await asyncio.to_thread(store, self._database)
            follow(self._service)

    def _exchange(self, pending: Pending) -> tuple[Stored, Snapshot | None]:
        stored = self._database.sync(pending)
        if stored.refresh is None:
            return stored, None
        try:
            snapshot = load(stored.refresh.snapshot)
        except InputError as error:
            # Heartbeats and operators' changes are taken over all the same; the placements before it stay.
            self._damage, self._damaged_refresh = str(error), stored.refresh.number
            self.faults[type(error).__name__] += 1
            return stored, None
        self._damage = None
        return stored, snapshot

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self._service.tick()

    async def _sync(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            await self.sync()
