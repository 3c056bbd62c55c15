"""What agents observed: late, repeated and reordered reports merge into the same row.

A report is a point in a lattice: the end of a process beats everything, then the later session,
then the higher sequence. Keeping the greatest needs no lock but the row's own.
"""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from pydantic import Field
from sqlalchemy import text

from durable.authority.db.engine import AsyncConnection
from durable.authority.db.transaction import regional_transaction
from durable.model.ids import ActorId, NodeId, RegionId, Token
from durable.model.refusal import Refusal, RefusalCode
from durable.model.states import ObservedState
from durable.validation.text import PlainText
from durable.validation.value import Value

MAX_REPORTS_PER_CALL = 5_000

ExitCode = Annotated[int, Field(strict=True, ge=0, le=255)]
Counter = Annotated[int, Field(strict=True, ge=1, le=2**63 - 1)]


class Observation(Value):
    """One agent's report on one binding."""

    token: Token
    node: NodeId
    session: Counter
    sequence: Counter
    state: ObservedState
    evidence: PlainText
    # Where the replica's output is kept on its node; None if it has none.
    log_directory: PlainText | None = None
    # That its process has ended with; None while it runs, and if a signal ended it.
    exit_code: ExitCode | None = None


# A report counts only from the session that holds the binding's node, at the region's epoch: an
# agent that was replaced, or has not come back since a fence, changes nothing.
_KNOWN = text("""
    SELECT row.token, row.node, row.session,
           l.session = row.session AND l.epoch = g.epoch AS current
      FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS row(token bigint, node text, session bigint)
      JOIN regional.bindings AS b ON b.region = :region AND b.token = row.token
      JOIN regional.reservations AS r
        ON r.region = :region AND r.token = row.token AND r.node = row.node
      JOIN regional.regions AS g ON g.region = :region
      LEFT JOIN regional.node_leases AS l ON l.region = :region AND l.node = row.node
""")

_MERGE = text("""
    INSERT INTO regional.observations AS o
           (region, token, session, sequence, state, evidence, log_directory, observer,
            received_at, exit_code)
    SELECT DISTINCT ON (row.token)
           :region, row.token, row.session, row.sequence, row.state, row.evidence,
           row.log_directory, :observer, coalesce(CAST(:now AS timestamptz), clock_timestamp()),
           row.exit_code
      FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS row(
           token bigint, session bigint, sequence bigint, state text, evidence text,
           log_directory text, exit_code integer)
     ORDER BY row.token, row.state IN ('failed', 'stopped') DESC,
              row.session DESC, row.sequence DESC
        ON CONFLICT (region, token) DO UPDATE
       SET session = excluded.session, sequence = excluded.sequence, state = excluded.state,
           evidence = excluded.evidence, log_directory = excluded.log_directory,
           observer = excluded.observer,
           -- Since when it is in this state, however often reported: its ready time counts so.
           received_at = CASE WHEN o.state = excluded.state THEN o.received_at
                              ELSE excluded.received_at END,
           exit_code = excluded.exit_code
     WHERE (excluded.state IN ('failed', 'stopped'), excluded.session, excluded.sequence)
         > (o.state IN ('failed', 'stopped'), o.session, o.sequence)
""")


@regional_transaction("durable_agent", "report observations in {region}")
async def observe(
    connection: AsyncConnection,
    region: RegionId,
    reports: Sequence[Observation],
    *,
    observer: ActorId,
    now: datetime | None = None,
) -> list[Refusal | None]:
    """Merges reports; answers a refusal for each that does not count, in their order."""
    assert len(reports) <= MAX_REPORTS_PER_CALL, f"at most {MAX_REPORTS_PER_CALL} reports per call"
    named = [report.model_dump(include={"token", "node", "session"}) for report in reports]
    found = await connection.execute(_KNOWN, {"region": region, "rows": json.dumps(named)})
    known = {(row.token, row.node, row.session): bool(row.current) for row in found}
    refusals = [_refusal(region, report, known) for report in reports]
    counted = [r for r, refusal in zip(reports, refusals, strict=True) if refusal is None]
    if counted:
        rows = json.dumps([report.model_dump(mode="json") for report in counted])
        await connection.execute(
            _MERGE, {"region": region, "rows": rows, "observer": observer, "now": now}
        )
    return refusals


def _refusal(
    region: RegionId, report: Observation, known: dict[tuple[int, str, int], bool]
) -> Refusal | None:
    current = known.get((report.token, str(report.node), report.session))
    if current is None:
        return Refusal(
            code=RefusalCode.UNKNOWN_TOKEN,
            sentence=f"{region} has no binding {report.token} on {report.node}; stop it there.",
        )
    if not current:
        return Refusal(
            code=RefusalCode.FENCED_AGENT,
            sentence=f"Session {report.session} of {report.node} was replaced or fenced; "
            "register again.",
        )
    return None
