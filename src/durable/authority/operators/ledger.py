"""The ledger of requests, one on each side: a request id counts once for its target.

Every object goes the same way, in one transaction with its target locked: recall the request, then
ask for rights, then make the change, then record the answer. Sent again, a request is answered as
it was first, whatever became since of the rights, of the age of its signature, or of the target:
deleted, or created again. With another payload, or from another actor, its id is refused.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Self

from sqlalchemy import text

from durable.authority.db.engine import AsyncConnection
from durable.authority.db.sent_rows import sent_rows
from durable.authority.db.transaction import global_transaction
from durable.model.operators.rights import OperatorMessage
from durable.model.operators.signature import is_signed_by
from durable.model.refusal import RefusalCode, RefusedError
from durable.validation.text import show_moment

Answer = Mapping[str, Any]
_Key = tuple[str, str]

# How long a request of a target without end is kept; those of an order are kept with the order.
KEPT_DAYS = 31
# More than come, so that what is old does not pile up.
FORGOTTEN_PER_REQUEST = 3


class LedgerSide(StrEnum):
    """Whose database keeps the requests, by the name of its schema."""

    GLOBAL = "global"
    REGIONAL = "regional"


_KEYS = sent_rows("keys", "key", "target text, request text")

_READ = {
    LedgerSide.GLOBAL: text(f"""
        SELECT r.*, public_key, (SELECT id FROM global.deployment) AS deployment
          FROM global.operator_requests AS r JOIN {_KEYS} USING (target, request)
          LEFT JOIN global.operators ON operator = actor
    """),
    LedgerSide.REGIONAL: text(f"""
        SELECT r.*, CAST(NULL AS text) AS public_key, '' AS deployment
          FROM regional.operator_requests AS r JOIN {_KEYS} USING (target, request)
    """),
}


def _record(side: LedgerSide, also: str = "") -> str:
    return f"""
          WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS now{also})
        INSERT INTO {side}.operator_requests
               (target, request, message, digest, actor, is_signed, answer, at, kept_until)
        SELECT target, request, message, digest, actor, is_signed, answer, clock.now,
               clock.now + make_interval(days => CAST(:days AS integer))
          FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS row(
               target text, request text, message text, digest text, actor text,
               is_signed boolean, answer jsonb), clock
            ON CONFLICT DO NOTHING
    """


_RECORD = {side: text(_record(side)) for side in LedgerSide}

# A few old ones at a time, whosever they are: many targets never get another request.
_RECORD_AND_FORGET = text(_record(LedgerSide.GLOBAL, ", global.forget_requests(:most)"))


@dataclass(frozen=True)
class RecordedRequest:
    """A request that was answered, and the key that has to sign a repetition if it was signed."""

    message: str
    digest: str
    actor: str
    is_signed: bool
    answer: Answer
    # None while it is on its way into the ledger.
    at: datetime | None = None
    public_key: str | None = None
    deployment: str = ""

    def answer_to(self, message: OperatorMessage) -> Answer:
        """The recorded answer; refuses what is not the same request of the same actor."""
        recorded = (self.message, self.digest, self.actor)
        if recorded != (message.message, message.digest, str(message.actor)):
            is_same = (self.message, self.actor) == (message.message, str(message.actor))
            payload = " with another payload" if is_same else ""
            raise RefusedError(
                RefusalCode.KEY_CONFLICT,
                f"{self.use_by(message)}{payload}; send another request id.",
            )
        return self.answer

    def use_by(self, message: OperatorMessage) -> str:
        """For what the message's request id was used before it came, for people."""
        by = "" if self.actor == str(message.actor) else f" by {self.actor}"
        when = "" if self.at is None else f" at {show_moment(self.at)}"
        return f"Request id {message.request_id[:128]} was used{by} for the {self.message}{when}"

    def sentence_to(self, message: OperatorMessage) -> str:
        """What it was answered first, for a sender who has to know that nothing changed now."""
        return f"{self.answer['answer']} ({self.use_by(message)}; nothing changed now.)"

    def check_proof(self, message: OperatorMessage) -> None:
        """Refuses a sender who only claims to have sent what was signed when it came first.

        However old the signature: it changes nothing any more, and what was done stays answered.
        """
        if self.is_signed:
            check_proof(message, self.public_key, self.deployment)


def check_proof(message: OperatorMessage, public_key: str | None, deployment: str) -> None:
    """Refuses the repetition of a signed request without a signature by the actor's key."""
    if public_key is None or not is_signed_by(public_key, message, deployment):
        raise RefusedError(
            RefusalCode.SIGNATURE_MISSING,
            f"Request id {message.request_id} was signed when it was first sent, so it is answered "
            "again only if it is signed with the same operator's key; sign it, or send another "
            "request id.",
        )


class RequestLedger:
    """The answers to some requests: read at once and, with those recorded since, written at once.

    It is read with the targets locked, so that nothing else answers the same requests meanwhile,
    and the answers commit together with what they describe.
    """

    def __init__(self, side: LedgerSide = LedgerSide.GLOBAL) -> None:
        self._side = side
        self._entries: dict[_Key, RecordedRequest] = {}
        self._new: list[OperatorMessage] = []

    @classmethod
    async def read(
        cls,
        connection: AsyncConnection,
        messages: Iterable[OperatorMessage],
        side: LedgerSide = LedgerSide.GLOBAL,
    ) -> Self:
        ledger = cls(side)
        keys = [dict(zip(("target", "request"), _key(one), strict=True)) for one in messages]
        for row in await connection.execute(_READ[side], {"keys": json.dumps(keys)}):
            ledger._entries[row.target, row.request] = RecordedRequest(
                row.message, row.digest, row.actor, row.is_signed, row.answer, row.at,
                row.public_key, row.deployment,
            )  # fmt: skip
        return ledger

    def find(self, message: OperatorMessage) -> RecordedRequest | None:
        """What its request id was used for, by any actor and for anything."""
        return self._entries.get(_key(message))

    def recall(self, message: OperatorMessage) -> Answer | None:
        """What the message was answered when it first came; refused if its id was used otherwise.

        A region has no keys: where one answers, the sender was checked on the global side.
        """
        entry = self.find(message)
        if entry is None:
            return None
        answer = entry.answer_to(message)
        if self._side is LedgerSide.GLOBAL and entry.at is not None:
            entry.check_proof(message)
        return answer

    def repeat(self, message: OperatorMessage) -> str | None:
        """`recall`, where the answer is a sentence."""
        answer = self.recall(message)
        return None if answer is None else str(answer["answer"])

    def record(self, message: OperatorMessage, answer: Answer) -> None:
        self._entries[_key(message)] = RecordedRequest(
            message.message, message.digest, str(message.actor), message.is_signed, answer
        )
        self._new.append(message)

    async def write(self, connection: AsyncConnection, *, kept_days: int | None = None) -> bool:
        """Whether all that were recorded are new; without `kept_days` they are kept for ever."""
        if not self._new:
            return True
        rows = json.dumps([self._row(message) for message in self._new])
        sent = {"rows": rows, "days": kept_days}
        if kept_days is None:
            written = await connection.execute(_RECORD[self._side], sent)
        else:
            most = FORGOTTEN_PER_REQUEST * len(self._new)
            written = await connection.execute(_RECORD_AND_FORGET, {**sent, "most": most})
        return written.rowcount == len(self._new)

    def _row(self, message: OperatorMessage) -> dict[str, Any]:
        target, request = _key(message)
        entry = self._entries[target, request]
        return {
            "target": target,
            "request": request,
            "message": entry.message,
            "digest": entry.digest,
            "actor": entry.actor,
            "is_signed": entry.is_signed,
            "answer": entry.answer,
        }


@global_transaction("durable_reader", "read a request's answer")
async def find_answer(connection: AsyncConnection, message: OperatorMessage) -> Answer | None:
    """What a request was answered, if it was; refuses an id that was used for something else."""
    return (await RequestLedger.read(connection, [message])).recall(message)


def _key(message: OperatorMessage) -> _Key:
    return (message.workflow_id, message.request_id)
