"""The ledger of requests about workloads: a request that is sent again gets the same answer.

A request id counts once, whatever became of the workload since: deleted, or created anew. It is
kept for a month at least; then the workload's next request drops it.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Self

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from durable.authority.db.sent_rows import sent_rows
from durable.authority.db.transaction import global_transaction
from durable.authority.operators.repetitions import SignedRequest
from durable.model.ids import ActorId, TenantId, WorkloadName
from durable.model.operators.rights import OperatorMessage
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.work.workload import WorkloadManifest

_READ = text(f"""
    SELECT tenant, workload, request, r.kind, payload_sha256, answer, actor, is_signed, at,
           public_key, deployment.id AS deployment
      FROM global.workload_requests AS r
      JOIN {sent_rows("keys", "key", "tenant text, workload text, request text")}
     USING (tenant, workload, request)
      CROSS JOIN global.deployment
      LEFT JOIN global.operators ON operator = actor
""")

_RECORD = text("""
    INSERT INTO global.workload_requests
           (tenant, workload, request, kind, payload_sha256, answer, actor, is_signed, at)
    SELECT tenant, workload, request, kind, decode(payload_sha256, 'hex'), answer, actor, is_signed,
           clock_timestamp()
      FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS row(
           tenant text, workload text, request text, kind text, payload_sha256 text, answer jsonb,
           actor text, is_signed boolean)
""")

# The schema refuses to forget a younger one.
_FORGET = text(f"""
    DELETE FROM global.workload_requests AS r
     USING {sent_rows("rows", "row", "tenant text, workload text")}
     WHERE r.tenant = row.tenant AND r.workload = row.workload
       AND r.at < clock_timestamp() - interval '31 days'
""")

_RequestKey = tuple[str, str, str]
Answer = Mapping[str, Any]


class RequestKind(StrEnum):
    """What was requested of a workload."""

    APPLY = "apply"
    SCALE = "scale"
    DELETE = "delete"
    PAUSE = "pause"
    RESUME = "resume"
    PROMOTE = "promote"
    ROLLBACK = "rollback"
    REPLACE = "replace"


class RequestIdentity:
    """Which request about which workload this is; a repetition has its kind, payload and actor."""

    def __init__(
        self,
        tenant: TenantId,
        workload: WorkloadName,
        request: str,
        kind: RequestKind,
        payload: Mapping[str, Any],
        actor: ActorId,
        signed: OperatorMessage | None = None,
    ) -> None:
        canonical = json.dumps(payload, sort_keys=True).encode()
        self.tenant, self.workload, self.request = tenant, workload, request
        self.kind = kind
        self.digest = hashlib.sha256(canonical).hexdigest()
        self.actor = actor
        # The message as it came, if it was signed.
        self.signed = signed

    @classmethod
    def of_apply(
        cls,
        manifest: WorkloadManifest,
        request: str,
        actor: ActorId,
        signed: OperatorMessage | None = None,
    ) -> Self:
        payload = manifest.model_dump(mode="json", exclude_defaults=True)
        of = (manifest.tenant, manifest.name, request)
        return cls(*of, RequestKind.APPLY, payload, actor, signed)

    @classmethod
    def of_scale(
        cls,
        tenant: TenantId,
        workload: WorkloadName,
        replicas: int,
        request: str,
        actor: ActorId,
        signed: OperatorMessage | None = None,
    ) -> Self:
        payload = {"replicas": replicas}
        return cls(tenant, workload, request, RequestKind.SCALE, payload, actor, signed)

    @classmethod
    def of_delete(
        cls,
        tenant: TenantId,
        workload: WorkloadName,
        request: str,
        actor: ActorId,
        signed: OperatorMessage | None = None,
    ) -> Self:
        return cls(tenant, workload, request, RequestKind.DELETE, {}, actor, signed)

    def __str__(self) -> str:
        return f"{self.kind} {self.tenant}/{self.workload} ({self.request})"

    @property
    def key(self) -> _RequestKey:
        return (str(self.tenant), str(self.workload), self.request)

    def parameters(self) -> dict[str, str]:
        return dict(zip(("tenant", "workload", "request"), self.key, strict=True))


@dataclass(frozen=True)
class _Entry:
    kind: RequestKind
    digest: str
    answer: Answer
    actor: str
    # None where nobody proved to be the actor.
    proof: SignedRequest | None = None
    # None while it is on its way into the ledger.
    at: datetime | None = None


class RequestLedger:
    """The answers to some requests: read at once and, with those recorded since, written at once.

    It is read with the workloads locked, so that nobody else answers the same requests meanwhile,
    and the answers commit together with what they describe.
    """

    def __init__(self) -> None:
        self._entries: dict[_RequestKey, _Entry] = {}
        self._new: list[RequestIdentity] = []

    @classmethod
    async def read(cls, connection: AsyncConnection, requests: Iterable[RequestIdentity]) -> Self:
        ledger = cls()
        keys = json.dumps([request.parameters() for request in requests])
        for row in await connection.execute(_READ, {"keys": keys}):
            ledger._entries[row.tenant, row.workload, row.request] = _Entry(
                RequestKind(row.kind),
                bytes(row.payload_sha256).hex(),
                row.answer,
                row.actor,
                SignedRequest(row.public_key, row.deployment) if row.is_signed else None,
                row.at,
            )
        return ledger

    def recall(self, request: RequestIdentity) -> Answer | None:
        """What the request was answered before, for whoever proves to have sent it.

        It is asked before rights and the age of a signature are: what was done stays answered.
        """
        answer = self.find(request)
        entry = self._entries.get(request.key)
        if entry is not None and entry.proof is not None:
            entry.proof.check_repetition(request.request, request.signed)
        return answer

    def find(self, request: RequestIdentity) -> Answer | None:
        """What the request was answered before; refuses an id that was used for something else."""
        entry = self._entries.get(request.key)
        if entry is None:
            return None
        known = (entry.kind, entry.digest, entry.actor)
        if known == (request.kind, request.digest, str(request.actor)):
            return entry.answer
        when = "" if entry.at is None else f" at {entry.at:%Y-%m-%d %H:%M:%S}Z"
        by = "" if entry.actor == request.actor else f" by {entry.actor}"
        is_other = entry.kind is request.kind and entry.digest != request.digest
        payload = " with another payload" if is_other else ""
        raise RefusedError(
            RefusalCode.KEY_CONFLICT,
            f"Request id {request.key[2][:128]} was used{by} for the {entry.kind}{when}{payload}; "
            "send this under an id of its own.",
        )

    def record(self, request: RequestIdentity, answer: Answer) -> None:
        self._entries[request.key] = _Entry(
            request.kind, request.digest, answer, str(request.actor)
        )
        self._new.append(request)

    async def write(self, connection: AsyncConnection) -> None:
        if self._new:
            rows = json.dumps([self._row(request) for request in self._new])
            await connection.execute(_RECORD, {"rows": rows})
            keys = {request.key[:2] for request in self._new}
            of = [{"tenant": tenant, "workload": workload} for tenant, workload in sorted(keys)]
            await connection.execute(_FORGET, {"rows": json.dumps(of)})

    def _row(self, request: RequestIdentity) -> dict[str, Any]:
        entry = self._entries[request.key]
        return {
            **request.parameters(),
            "kind": entry.kind,
            "payload_sha256": entry.digest,
            "answer": entry.answer,
            "actor": str(request.actor),
            "is_signed": request.signed is not None,
        }


@global_transaction("durable_reader", "read a request's answer")
async def find_answer(connection: AsyncConnection, request: RequestIdentity) -> Answer | None:
    """What a request was answered, if it was; refuses an id that was used for something else."""
    return (await RequestLedger.read(connection, [request])).recall(request)
