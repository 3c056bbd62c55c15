"""What was asked of a workload, by its request's id: asked again, it is answered the same."""

import hashlib
import json
from collections.abc import Iterable
from typing import Any, Self

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from durable.authority.workloads.rows import Admission
from durable.model.ids import ActorId
from durable.model.refusal import RefusalCode, RefusedError

_RECALL = text("""
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

_Key = tuple[str, str, str]


class Asked:
    """One request about one workload; its payload is what must be the same when it is repeated."""

    def __init__(
        self, tenant: str, workload: str, request: str, payload: dict[str, Any], actor: ActorId
    ) -> None:
        canonical = json.dumps(payload, sort_keys=True).encode()
        self.key: _Key = (str(tenant), str(workload), request)
        self.digest = hashlib.sha256(canonical).hexdigest()
        self.actor = actor

    async def recall(self, connection: AsyncConnection) -> Admission | None:
        """What it was answered before. With the workload locked, so that nobody answers it now."""
        return (await Answers.read(connection, [self])).recall(self)

    async def record(self, connection: AsyncConnection, answer: Admission) -> Admission:
        """Keeps the answer; it commits together with what it tells of."""
        answers = Answers()
        answers.record(self, answer)
        await answers.write(connection)
        return answer

    def named(self) -> dict[str, str]:
        return dict(zip(("tenant", "workload", "request"), self.key, strict=True))


class Answers:
    """The answers to many requests, read at once and, with those that were added, kept at once."""

    def __init__(self) -> None:
        self._known: dict[_Key, tuple[str, Admission]] = {}
        self._new: list[Asked] = []

    @classmethod
    async def read(cls, connection: AsyncConnection, asked: Iterable[Asked]) -> Self:
        """What these were answered before. With their workloads locked, as in `Asked.recall`."""
        answers = cls()
        keys = json.dumps([one.named() for one in asked])
        for row in await connection.execute(_RECALL, {"keys": keys}):
            told = (bytes(row.payload_sha256).hex(), Admission.model_validate(row.answer))
            answers._known[row.tenant, row.workload, row.request] = told
        return answers

    def recall(self, asked: Asked) -> Admission | None:
        if asked.key not in self._known:
            return None
        digest, answer = self._known[asked.key]
        if digest != asked.digest:
            raise RefusedError(
                RefusalCode.KEY_CONFLICT,
                f"Request id {asked.key[2][:128]} was used for something else; "
                "send this under an id of its own.",
            )
        return answer

    def record(self, asked: Asked, answer: Admission) -> None:
        self._known[asked.key] = (asked.digest, answer)
        self._new.append(asked)

    async def write(self, connection: AsyncConnection) -> None:
        if self._new:
            rows = json.dumps([self._row(asked) for asked in self._new])
            await connection.execute(_RECORD, {"rows": rows})

    def _row(self, asked: Asked) -> dict[str, Any]:
        digest, answer = self._known[asked.key]
        kept = {"payload_sha256": digest, "answer": answer.model_dump(mode="json")}
        return {**asked.named(), **kept, "actor": str(asked.actor)}
