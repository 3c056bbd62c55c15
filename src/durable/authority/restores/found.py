"""A database that went back: found by comparing what two sides know, and then kept from changing.

The finding is a row in the database that went back. From that commit on the schema refuses every
change there, until `durable restored` has ended it: see `restores.sql`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain

from sqlalchemy import text

from durable.authority.audit import chain as audit
from durable.authority.db.connection import Databases, transact
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.everywhere import ask_databases
from durable.authority.db.transaction import regional_transaction
from durable.model.fleet.restores import GLOBAL_SIDE, WentBack, epoch_at
from durable.model.ids import ActorId, RegionId

FINDER = ActorId("controller:region")
ROLE = "durable_region"
# Who begins to look after a restore that is older takes it that others have looked since.
RECENT = timedelta(minutes=15)

# Compared again under the lock that ending the finding takes: a late look finds nothing any more.
_LOCK = text("SELECT went_back_at FROM regional.restores FOR UPDATE")
_NUMBER = text("SELECT lease_number FROM regional.regions WHERE region = :region")
_FIND = text("""
    UPDATE regional.restores SET went_back_at = clock_timestamp(), why = :why
     WHERE went_back_at IS NULL
""")
_READ = text("""
    SELECT s.went_back_at, s.why, d.serves_global,
           (SELECT coalesce(array_agg(region ORDER BY region), '{}') FROM regional.regions)
               AS regions
      FROM regional.restores AS s, regional.deployment AS d WHERE s.went_back_at IS NOT NULL
""")


async def find_global_side(
    connection: AsyncConnection, region: RegionId, *, has: int, knows: int
) -> None:
    """On the global side: a region has had more renewals of its lease than are known here."""
    why = (
        f"the global side was restored from an older copy: it knows of {knows} renewals of the "
        f"lease of {region}, which has had {has}. Nothing is changed here until an operator has "
        "run `durable restored --global --reason ...`; see runbooks/authority-restored.md."
    )
    evidence = {"region": region, "renewals": has, "known": knows}
    await _find(connection, audit.GLOBAL_CHAIN, why, evidence)


@regional_transaction(ROLE, "compare {region} with the global side")
async def find_region(connection: AsyncConnection, region: RegionId, *, known: int) -> bool:
    """In the region: whether it has had fewer renewals of its lease than it had shown to have."""
    await connection.execute(_LOCK)
    has = (await connection.execute(_NUMBER, {"region": region})).scalar_one()
    if has >= known:
        return False
    why = (
        f"the database of {region} was restored from an older copy: it knows of {has} renewals of "
        f"its lease, and had {known}. Nothing is changed there until an operator has run `durable "
        f"restored {region} --reason ...`; see runbooks/region-restored.md."
    )
    await _find(connection, region, why, {"renewals": has, "known": known})
    return True


async def _find(
    connection: AsyncConnection, chain: str, why: str, evidence: Mapping[str, object]
) -> None:
    if not (await connection.execute(_FIND, {"why": why})).rowcount:
        return
    target = GLOBAL_SIDE if chain == audit.GLOBAL_CHAIN else f"region/{chain}"
    await audit.append(
        connection, chain, actor=FINDER, action="find restored", target=target, after=evidence
    )


async def read_went_back(databases: Databases) -> Sequence[WentBack]:
    """Every database that answers, went back and was not declared restored since."""

    async def read(connection: AsyncConnection) -> list[WentBack]:
        rows = (await connection.execute(_READ)).mappings()
        return [WentBack(**row) for row in rows]

    async def ask(url: str) -> list[WentBack]:
        engine = databases.at(url, "durable_reader")
        return await transact(engine, read, doing="read whether it went back")

    found, _ = await ask_databases(databases, ask)
    return list(chain.from_iterable(found))


_EPOCH = text("SELECT epoch, clock_timestamp() AS now FROM regional.restores")


@dataclass(frozen=True)
class Restores:
    """When databases were declared restored last, by their epochs, and which were so lately."""

    epochs: frozenset[int]
    recent: frozenset[int]


async def read_restores(databases: Databases) -> Restores:
    """Of every database that answers."""

    async def read(connection: AsyncConnection) -> tuple[int, bool]:
        row = (await connection.execute(_EPOCH)).one()
        return row.epoch, row.epoch > epoch_at(row.now - RECENT)

    async def ask(url: str) -> tuple[int, bool]:
        return await transact(databases.at(url, "durable_reader"), read, doing="read its restores")

    found, _ = await ask_databases(databases, ask)
    return Restores(
        frozenset(epoch for epoch, _ in found),
        frozenset(epoch for epoch, is_recent in found if is_recent),
    )
