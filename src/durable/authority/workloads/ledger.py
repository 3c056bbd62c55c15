"""The ledger of requests about workloads: a request that is sent again gets the same answer."""

import hashlib
import json
from collections.abc import Iterable
from typing import Any, Self

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from durable.model.ids import ActorId
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.workload import AdmittedWorkload

_READ = text("""
    SELECT tenant, workload, request, payload_sha256, answer FROM global.workload_requests
      JOIN jsonb_to_recordset(CAST(:keys AS jsonb)) AS key(
           tenant text, workload text, request text) USING (tenant, workload, request)
""")

_RECORD = text("""
    INSERT INTO global.workload_requests
           (tenant, workload, request, payload_sha256, answer, actor, at)
    SELECT tenant, workload, request, decode(payload_sha256, 'hex'), answer, actor,
           clock_timestamp()
      FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS row(
           tenant text, workload text, request text, payload_sha256 text, answer jsonb, actor text)
""")

_RequestKey = tuple[str, str, str]


class RequestIdentity:
    """Which request about which workload this is; a repetition must have the same payload."""

    def __init__(
        self, tenant: str, workload: str, request: str, payload: dict[str, Any], actor: ActorId
    ) -> None:
        canonical = json.dumps(payload, sort_keys=True).encode()
        self.key: _RequestKey = (str(tenant), str(workload), request)
        self.digest = hashlib.sha256(canonical).hexdigest()
        self.actor = actor

    def parameters(self) -> dict[str, str]:
        return dict(zip(("tenant", "workload", "request"), self.key, strict=True))


class RequestLedger:
    """The answers to some requests: read at once and, with those recorded since, written at once.

    It is read with the workloads locked, so that nobody else answers the same requests meanwhile,
    and the answers commit together with what they describe.
    """

    def __init__(self) -> None:
        self._answers: dict[_RequestKey, tuple[str, AdmittedWorkload]] = {}
        self._new: list[RequestIdentity] = []

    @classmethod
    async def read(cls, connection: AsyncConnection, requests: Iterable[RequestIdentity]) -> Self:
        ledger = cls()
        keys = json.dumps([request.parameters() for request in requests])
        for row in await connection.execute(_READ, {"keys": keys}):
            digest, answer = bytes(row.payload_sha256).hex(), row.answer
            ledger._answers[row.tenant, row.workload, row.request] = (
                digest,
                AdmittedWorkload.model_validate(answer),
            )
        return ledger

    def recall(self, request: RequestIdentity) -> AdmittedWorkload | None:
        """What the request was answered before; refuses an id that was used for something else."""
        if request.key not in self._answers:
            return None
        digest, answer = self._answers[request.key]
        if digest != request.digest:
            raise RefusedError(
                RefusalCode.KEY_CONFLICT,
                f"Request id {request.key[2][:128]} was used for something else; "
                "send this under an id of its own.",
            )
        return answer

    def record(self, request: RequestIdentity, answer: AdmittedWorkload) -> None:
        self._answers[request.key] = (request.digest, answer)
        self._new.append(request)

    async def write(self, connection: AsyncConnection) -> None:
        if self._new:
            rows = json.dumps([self._row(request) for request in self._new])
            await connection.execute(_RECORD, {"rows": rows})

    def _row(self, request: RequestIdentity) -> dict[str, Any]:
        digest, answer = self._answers[request.key]
        return {
            **request.parameters(),
            "payload_sha256": digest,
            "answer": answer.model_dump(mode="json"),
            "actor": str(request.actor),
        }
