"""Quota is escrow: a tenant's hard quota is split into grants, and grants move by transfer.

A transfer is four small transactions, each of which happens once by the transfer's id: begin it,
take from the giving region, move the global books, add to the receiving region. Where no region
gives, the first and the third are one. At every point in between a region holds at most what the
books say, and the books hold at most the hard quota.
"""

from sqlalchemy import text

from durable.authority.audit import chain as audit
from durable.authority.db.connection import Databases
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.transaction import global_transaction
from durable.authority.fleet.regions import read_region
from durable.authority.quota.grants import GrantPart, add_grant, take_grant
from durable.authority.quota.quotas import (
    LOCK_QUOTA,
    ROLE,
    amount_of,
    amount_parameters,
    quota_of,
    unknown_tenant,
)
from durable.model.fleet.capacity import Quota
from durable.model.ids import ActorId, RegionId, TenantId
from durable.model.refusal import Refusal, RefusalCode, RefusedError
from durable.model.resources import ZERO, Resources
from durable.validation.text import PlainText
from durable.validation.value import Value

_BEGIN = text("""
    INSERT INTO global.grant_transfers
           (transfer, tenant, from_region, to_region, cpu_millis, memory_mib, gpus,
            protected_cpu_millis, protected_memory_mib, protected_gpus, state, actor, requested_at)
    VALUES (:transfer, :tenant, :from_region, :to_region, :cpu_millis, :memory_mib, :gpus,
            :protected_cpu_millis, :protected_memory_mib, :protected_gpus, 'requested', :actor,
            clock_timestamp())
        ON CONFLICT (transfer) DO NOTHING
""")

_LOCK = text("SELECT * FROM global.grant_transfers WHERE transfer = :transfer FOR UPDATE")

_SET_STATE = text("""
    UPDATE global.grant_transfers
       SET state = CAST(:state AS text),
           settled_at = CASE WHEN CAST(:state AS text) = 'settled' THEN clock_timestamp() END
     WHERE transfer = :transfer
""")

_MOVE_PROTECTED = text("""
    UPDATE global.grant_transfers
       SET protected_cpu_millis = :protected_cpu_millis,
           protected_memory_mib = :protected_memory_mib, protected_gpus = :protected_gpus
     WHERE transfer = :transfer
""")

_ADD = text("""
    INSERT INTO global.grants AS g
           (tenant, region, granted_cpu_millis, granted_memory_mib, granted_gpus,
            protected_cpu_millis, protected_memory_mib, protected_gpus)
    VALUES (:tenant, :region, :cpu_millis, :memory_mib, :gpus,
            least(:cpu_millis, :protected_cpu_millis), least(:memory_mib, :protected_memory_mib),
            least(:gpus, :protected_gpus))
        ON CONFLICT (tenant, region) DO UPDATE
       SET granted_cpu_millis = g.granted_cpu_millis + :cpu_millis,
           granted_memory_mib = g.granted_memory_mib + :memory_mib,
           granted_gpus = g.granted_gpus + :gpus,
           protected_cpu_millis = g.protected_cpu_millis + :protected_cpu_millis,
           protected_memory_mib = g.protected_memory_mib + :protected_memory_mib,
           protected_gpus = g.protected_gpus + :protected_gpus
""")

_SUBTRACT = text("""
    UPDATE global.grants
       SET granted_cpu_millis = granted_cpu_millis - :cpu_millis,
           granted_memory_mib = granted_memory_mib - :memory_mib,
           granted_gpus = granted_gpus - :gpus,
           protected_cpu_millis = least(granted_cpu_millis - :cpu_millis,
                                greatest(0, protected_cpu_millis - :protected_cpu_millis)),
           protected_memory_mib = least(granted_memory_mib - :memory_mib,
                                greatest(0, protected_memory_mib - :protected_memory_mib)),
           protected_gpus = least(granted_gpus - :gpus,
                                greatest(0, protected_gpus - :protected_gpus))
     WHERE tenant = :tenant AND region = :region
""")

_BOOKS = text("SELECT * FROM global.grants WHERE tenant = :tenant")

_HAS_LAPSED = text("""
    SELECT EXISTS (SELECT FROM global.grant_transfers
                    WHERE from_region = :region AND state = 'lapsed' AND tenant = :tenant)
""")

# The quota in force follows a lowered target down as grants come back.
_LOWER_HARD = text("""
    UPDATE global.quotas
       SET hard_cpu_millis = greatest(target_cpu_millis, granted_cpu_millis),
           hard_memory_mib = greatest(target_memory_mib, granted_memory_mib),
           hard_gpus = greatest(target_gpus, granted_gpus)
     WHERE tenant = :tenant
""")


class GrantTransfer(Value):
    """Moves grant between regions; no region at one end means the tenant's ungranted rest.

    What preemption never takes goes along: at least `protected`, all for which the giver would have
    too little left, and from the ungranted rest as much as the amount can protect.
    """

    id: PlainText
    tenant: TenantId
    amount: Resources
    protected: Resources = ZERO
    from_region: RegionId | None = None
    to_region: RegionId | None = None
    actor: ActorId

    def part(self, protected: Resources) -> GrantPart:
        return GrantPart(self.tenant, self.amount, protected, self.id)


async def transfer_grant(databases: Databases, transfer: GrantTransfer) -> None:
    """Carries a transfer to its end; sent again after a crash, it continues where it stopped.

    It ends in settled or refused. A refusal changes nothing, now or later, also when it is sent
    again: use a new id to try again.
    """
    for region in (transfer.from_region, transfer.to_region):
        if region is not None:
            await read_region(databases, region)  # refuses an unknown one before anything moves
    if transfer.from_region == transfer.to_region:
        raise RefusedError(
            RefusalCode.TRANSFER_CONFLICT,
            f"Transfer {transfer.id} begins and ends at the same place; name two places.",
        )
    state, protected = await _begin(databases, transfer)
    if state in ("requested", "refused") and transfer.from_region is not None:
        is_returned = transfer.to_region is None
        part = transfer.part(protected)
        taken = await take_grant(databases, transfer.from_region, part, and_owed=is_returned)
        if isinstance(taken, Refusal):
            await _refuse(databases, transfer)
            raise RefusedError(taken.code, taken.sentence)
        protected = await _move_books(databases, transfer, taken)
    if state != "settled" and transfer.to_region is not None:
        await add_grant(databases, transfer.to_region, transfer.part(protected))
        await settle_books(databases, transfer.id)


@global_transaction(ROLE, "begin transfer {transfer.id}")
async def _begin(connection: AsyncConnection, transfer: GrantTransfer) -> tuple[str, Resources]:
    """Writes the transfer down once; answers its state, and how much protected goes along."""
    payload = {
        "transfer": transfer.id,
        "tenant": str(transfer.tenant),
        "from_region": transfer.from_region and str(transfer.from_region),
        "to_region": transfer.to_region and str(transfer.to_region),
        **amount_parameters(transfer.amount),
    }
    locked = await connection.execute(LOCK_QUOTA, {"tenant": transfer.tenant})
    quota = locked.mappings().one_or_none()
    if quota is None:
        raise unknown_tenant(transfer.tenant)
    written = {
        **payload, **amount_parameters(transfer.protected, "protected_"), "actor": transfer.actor,
    }  # fmt: skip
    if (await connection.execute(_BEGIN, written)).rowcount:
        await audit.append(
            connection,
            audit.GLOBAL_CHAIN,
            actor=transfer.actor,
            action="transfer grant",
            target=f"tenant/{transfer.tenant}",
            before={"region": transfer.from_region},
            after={"region": transfer.to_region, "amount": str(transfer.amount)},
        )
    row = (await connection.execute(_LOCK, {"transfer": transfer.id})).mappings().one()
    if any(row[name] != value for name, value in payload.items()):
        raise RefusedError(
            RefusalCode.TRANSFER_CONFLICT,
            f"Transfer {transfer.id} was used before for something else; use a new id.",
        )
    if row["state"] == "requested" and transfer.from_region is not None:
        await _refuse_lapsed(connection, transfer)
    if row["state"] == "requested" and transfer.from_region is None:
        # In one transaction, so that a refusal leaves no amount behind for the next send.
        _refuse_over_target(transfer, quota_of(quota))
        protected = await _ungranted_protected(connection, transfer, quota_of(quota))
        return await _move(connection, transfer, protected), protected
    return row["state"], amount_of(row, "protected_")


async def _ungranted_protected(
    connection: AsyncConnection, transfer: GrantTransfer, quota: Quota
) -> Resources:
    """What of the tenant's protected part no region has, as far as the receiver can hold it."""
    rows = (await connection.execute(_BOOKS, {"tenant": transfer.tenant})).mappings().all()
    granted = sum((amount_of(row, "protected_") for row in rows), start=ZERO)
    here = [row for row in rows if row["region"] == transfer.to_region]
    bare = sum((amount_of(row, "granted_") - amount_of(row, "protected_") for row in here), ZERO)
    asked = transfer.amount + transfer.protected
    return quota.protected.excess_over(granted).lower_of(asked).lower_of(bare + transfer.amount)


async def _refuse_lapsed(connection: AsyncConnection, transfer: GrantTransfer) -> None:
    """A region whose grant has lapsed has it in its own rows until it is opened."""
    of = {"tenant": transfer.tenant, "region": transfer.from_region}
    if (await connection.execute(_HAS_LAPSED, of)).scalar_one():
        raise RefusedError(
            RefusalCode.GRANT_IN_USE,
            f"What {transfer.from_region} was granted of {transfer.tenant}'s quota has lapsed; "
            "take some back when the region is open again.",
        )


def _refuse_over_target(transfer: GrantTransfer, quota: Quota) -> None:
    moves = not transfer.amount.is_zero
    if moves and not (quota.granted + transfer.amount).fits_in(quota.target):
        raise RefusedError(
            RefusalCode.OVER_HARD_QUOTA,
            f"The hard quota of {transfer.tenant} is {quota.target} and {quota.granted} of it is "
            f"already granted, so {transfer.amount} more does not fit; raise the quota or return "
            "a grant.",
        )


@global_transaction(ROLE, "move the books of transfer {transfer.id}")
async def _move_books(
    connection: AsyncConnection, transfer: GrantTransfer, taken: Resources
) -> Resources:
    await connection.execute(LOCK_QUOTA, {"tenant": transfer.tenant})
    row = await connection.execute(_LOCK, {"transfer": transfer.id})
    if row.mappings().one()["state"] == "requested":
        await _move(connection, transfer, taken)
    return taken


async def _move(connection: AsyncConnection, transfer: GrantTransfer, protected: Resources) -> str:
    """Lowers the giver's row and raises the receiver's, under the locks of quota and transfer."""
    amount = {
        "tenant": transfer.tenant,
        **amount_parameters(transfer.amount),
        **amount_parameters(protected, "protected_"),
    }
    await connection.execute(_MOVE_PROTECTED, {**amount, "transfer": transfer.id})
    if transfer.from_region is not None:
        await connection.execute(_SUBTRACT, {**amount, "region": transfer.from_region})
    if transfer.to_region is not None:
        await connection.execute(_ADD, {**amount, "region": transfer.to_region})
    await connection.execute(_LOWER_HARD, {"tenant": transfer.tenant})
    state = "settled" if transfer.to_region is None else "moved"
    await connection.execute(_SET_STATE, {"transfer": transfer.id, "state": state})
    return state


async def return_to_books(
    connection: AsyncConnection, tenant: TenantId, region: RegionId, parameters: dict[str, int]
) -> None:
    """Lowers what a region was given, under the lock of the quota."""
    await connection.execute(_SUBTRACT, {"tenant": tenant, "region": region, **parameters})
    await connection.execute(_LOWER_HARD, {"tenant": tenant})


@global_transaction(ROLE, "refuse transfer {transfer.id}")
async def _refuse(connection: AsyncConnection, transfer: GrantTransfer) -> None:
    await connection.execute(_SET_STATE, {"transfer": transfer.id, "state": "refused"})


@global_transaction(ROLE, "settle transfer {transfer}")
async def settle_books(connection: AsyncConnection, transfer: str) -> None:
    """Both halves are done."""
    await connection.execute(_SET_STATE, {"transfer": transfer, "state": "settled"})
