"""What the last simulated losses said of each critical workload."""

import json
from collections.abc import Mapping, Sequence

from sqlalchemy import text

from durable.authority.db.engine import AsyncConnection
from durable.authority.db.sent_rows import sent_rows
from durable.authority.db.transaction import global_transaction
from durable.model.ids import TenantId, WorkloadName
from durable.model.recovery.readiness import Name, Recoverable

_READ = text(f"""
    SELECT r.tenant, r.workload, r.is_met, r.sentence FROM global.readiness AS r
      JOIN {sent_rows("names", "name", "tenant text, workload text")} USING (tenant, workload)
""")
_KNOWN = text("SELECT tenant, workload, is_met, sentence FROM global.readiness")
_SENT = sent_rows("rows", "row", "tenant text, workload text, is_met boolean, sentence text")
_WRITE = text(f"""
    INSERT INTO global.readiness (tenant, workload, is_met, sentence)
    SELECT tenant, workload, is_met, sentence FROM {_SENT}
        ON CONFLICT (tenant, workload) DO UPDATE
       SET is_met = excluded.is_met, sentence = excluded.sentence
""")
_DELETE = text(f"""
    DELETE FROM global.readiness AS r
     USING {sent_rows("rows", "row", "tenant text, workload text")}
     WHERE r.tenant = row.tenant AND r.workload = row.workload
""")


@global_transaction("durable_reader", "read which workloads would come back")
async def read_recoverable(
    connection: AsyncConnection, names: Sequence[Name]
) -> dict[Name, Recoverable]:
    """Of those that are critical and were looked at."""
    sent = [{"tenant": tenant, "workload": workload} for tenant, workload in names]
    return {
        (TenantId(row.tenant), WorkloadName(row.workload)): Recoverable(
            is_met=row.is_met, sentence=row.sentence
        )
        for row in await connection.execute(_READ, {"names": json.dumps(sent)})
    }


@global_transaction("durable_recovery", "keep which workloads would come back")
async def keep_readiness(
    connection: AsyncConnection, found: Mapping[Name, Recoverable]
) -> list[Name]:
    """Keeps what was found, and forgets all else; answers the workloads of which it is news."""
    known = {
        (TenantId(row.tenant), WorkloadName(row.workload)): Recoverable(
            is_met=row.is_met, sentence=row.sentence
        )
        for row in await connection.execute(_KNOWN)
    }
    news = {name: one for name, one in found.items() if known.get(name) != one}
    gone = known.keys() - found.keys()
    if news:
        rows = [
            {"tenant": tenant, "workload": workload, **one.model_dump()}
            for (tenant, workload), one in news.items()
        ]
        await connection.execute(_WRITE, {"rows": json.dumps(rows)})
    if gone:
        rows = [{"tenant": tenant, "workload": workload} for tenant, workload in gone]
        await connection.execute(_DELETE, {"rows": json.dumps(rows)})
    return [*news, *gone]
