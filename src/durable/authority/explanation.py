"""What was asked of a region for a workload and what became of it, for those who ask why."""

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from durable.authority.connection import Databases, transact
from durable.model.ids import Generation, RegionId, TenantId, Token, WorkloadName
from durable.model.records import RecordedIntent, Transition

MOST = 1_000

# The prefix is served by the primary key, whose keys are ordered by their bytes.
_INTENTS = text("""
    SELECT region, key, outcome, version, recorded_at FROM regional.intents
     WHERE region = :region AND key LIKE :prefix
       AND (CAST(:attempt AS text) IS NULL OR split_part(key, '/', 5) = :attempt)
     ORDER BY version DESC, key DESC LIMIT :last
""")

_TRANSITIONS = text("""
    SELECT region, version, object, from_state, to_state, actor, evidence, database_role, at
      FROM regional.transitions
     WHERE region = :region AND object IN ('reservation/' || :token, 'binding/' || :token)
     ORDER BY version, ordinal
""")


async def read_intents(
    databases: Databases,
    region: RegionId,
    tenant: TenantId,
    workload: WorkloadName,
    generation: Generation,
    attempt: int | None = None,
    *,
    last: int = MOST,
) -> list[RecordedIntent]:
    """The newest intents of a generation, or of one attempt of it, in the order of commits."""
    prefix = f"{tenant}/{workload}/g{generation}/"
    of = {
        "region": region,
        # Names hold none of LIKE's own signs today; whoever allows one must not widen this.
        "prefix": prefix.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%",
        "attempt": None if attempt is None else f"a{attempt}",
        "last": min(last, MOST),
    }

    async def work(connection: AsyncConnection) -> list[RecordedIntent]:
        rows = (await connection.execute(_INTENTS, of)).mappings()
        return [RecordedIntent(**dict(row)) for row in rows][::-1]

    engine = databases.at_region(region, "durable_reader")
    return await transact(engine, work, doing=f"read the intents of {tenant}/{workload}")


async def read_transitions(
    databases: Databases, region: RegionId, token: Token
) -> list[Transition]:
    """Every move of one claim, from its reservation to its release."""

    async def work(connection: AsyncConnection) -> list[Transition]:
        rows = await connection.execute(_TRANSITIONS, {"region": region, "token": str(token)})
        return [Transition(**dict(row)) for row in rows.mappings()]

    engine = databases.at_region(region, "durable_reader")
    return await transact(engine, work, doing=f"read the moves of token {token}")
