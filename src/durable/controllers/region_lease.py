"""Keeps a region on its lease: renews it, and obeys a fence when the answer is one.

A region that cannot reach the global side goes on within its lease; then its commits refuse new
work with that reason. A region that was fenced releases what goes elsewhere, for as long as there
is some: that is how the claims end that were left behind while it could not be reached.
"""

import asyncio
import logging
import os
import random
import socket
from contextlib import suppress

from durable.authority.db.errors import AuthorityError
from durable.authority.recovery.fenced_claims import release_fenced
from durable.authority.recovery.region_leases import renew
from durable.authority.restores.opening import open_restored
from durable.authority.sides import Regional
from durable.model.fleet.region_life import RegionLease
from durable.model.refusal import RefusedError

log = logging.getLogger(__name__)

LEASE_SECONDS = 120
# Of a lease: several renewals may be lost before the last is too late.
RENEWALS_PER_LEASE = 6
# What is left behind a fence is released this often, at most so much at once.
FENCED_SECONDS = 2.0
MAX_RELEASED_AT_ONCE = 512


class RegionLeaseController:
    """One region's lease, for as long as a worker serves it."""

    def __init__(self, regional: Regional, lease_seconds: float = LEASE_SECONDS) -> None:
        self._regional = regional
        self._lease_seconds = lease_seconds
        self._holder = f"the worker {os.getpid()} on {socket.gethostname()}"

    async def begin(self) -> None:
        """Before anything is served; without the global side, what is left of the lease counts."""
        with suppress(AuthorityError, RefusedError):
            await self.once()

    async def run(self) -> None:
        pause = self._lease_seconds / RENEWALS_PER_LEASE
        while True:
            wait = pause
            try:
                lease = await self.once()
                if lease.is_fenced or lease.went_back_seconds is not None:
                    wait = min(pause, FENCED_SECONDS)
            except (AuthorityError, RefusedError) as error:
                log.warning("the lease of %s: %s", self._regional.region, error)
            # Jittered: workers that lost the global side together do not come back together.
            await asyncio.sleep(wait * random.uniform(0.75, 1.0))  # noqa: S311 - it guards nothing

    async def once(self) -> RegionLease:
        """Renews, or obeys the fence and releases what it ended."""
        regional = self._regional
        lease = await renew(
            regional.databases, regional.region, self._holder, lease_seconds=self._lease_seconds
        )
        if lease.went_back_seconds is not None:
            log.warning(
                "the clock of %s went back by %.1f s: its lease has ended and is renewed next",
                regional.region,
                lease.went_back_seconds,
            )
        if lease.is_fenced:
            left = await release_fenced(
                regional.databases, regional.region, epoch=lease.epoch, most=MAX_RELEASED_AT_ONCE
            )
            if lease.is_restored and not left.waiting:
                await open_restored(regional.databases, regional.region, lease.epoch)
        return lease
