"""What was asked of a workload, by its request's id: asked again, it is answered the same."""

import hashlib
import json
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from durable.authority.workloads.rows import Admission
from durable.model.ids import ActorId
from durable.model.refusal import RefusalCode, RefusedError

_RECALL = text("""
    SELECT payload_sha256, answer FROM global.workload_requests
     WHERE tenant = :tenant AND workload = :workload AND request = :request
""")

_RECORD = text("""
    INSERT INTO global.workload_requests
           (tenant, workload, request, payload_sha256, answer, actor, at)
    VALUES (:tenant, :workload, :request, :payload_sha256, CAST(:answer AS jsonb), :actor,
            clock_timestamp())
""")


class Asked:
    """One request about one workload; its payload is what must be the same when it is repeated."""

    def __init__(
        self, tenant: str, workload: str, request: str, payload: dict[str, Any], actor: ActorId
    ) -> None:
        canonical = json.dumps(payload, sort_keys=True).encode()
        self._key = {"tenant": tenant, "workload": workload, "request": request}
        self._digest = hashlib.sha256(canonical).digest()
        self._actor = actor

    async def recall(self, connection: AsyncConnection) -> Admission | None:
        """What it was answered before. With the workload locked, so that nobody answers it now."""
        row = (await connection.execute(_RECALL, self._key)).one_or_none()
        if row is None:
            return None
        if bytes(row.payload_sha256) != self._digest:
            raise RefusedError(
                RefusalCode.KEY_CONFLICT,
                f"Request id {self._key['request'][:128]} was used for something else; "
                "send this under an id of its own.",
            )
        return Admission.model_validate(row.answer)

    async def record(self, connection: AsyncConnection, answer: Admission) -> Admission:
        """Keeps the answer; it commits together with what it tells of."""
        kept = {"answer": answer.model_dump_json(), "payload_sha256": self._digest}
        await connection.execute(_RECORD, {**self._key, **kept, "actor": self._actor})
        return answer
