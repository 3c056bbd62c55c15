"""A request that is sent again: what its sender has to prove, and whether it may count again."""

from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from durable.model.operators.rights import Delivery, OperatorMessage
from durable.model.operators.signature import is_signed_by
from durable.model.refusal import RefusalCode, RefusedError

_TAKE = text("""
    INSERT INTO global.taken_requests (workflow_id, request, run, number, message, actor, at)
    VALUES (:workflow_id, :request, :run, :number, :message, :actor, clock_timestamp())
        ON CONFLICT DO NOTHING
""")
_TAKEN = text("""
    SELECT run, number, message, actor, at FROM global.taken_requests
     WHERE workflow_id = :workflow_id AND request = :request
""")
# A few at a time, whosever they are: many workflows never take another request. One deletes, and
# whoever comes at the same time leaves that to it.
_FORGET = text("""
    DELETE FROM global.taken_requests
     WHERE pg_try_advisory_xact_lock(hashtext('durable taken requests'))
       AND (workflow_id, request) IN (
           SELECT workflow_id, request FROM global.taken_requests
            WHERE at < clock_timestamp() - interval '31 days' ORDER BY at LIMIT 10)
""")


@dataclass(frozen=True)
class SignedRequest:
    """A request that was signed when it was first sent, and the key that must sign a repetition."""

    public_key: str | None
    deployment: str

    def check_repetition(self, request: str, asked: OperatorMessage | None) -> None:
        """Refuses whoever only claims to have sent it.

        However old its signature: it changes nothing any more, and what was done stays answered.
        """
        is_proven = (
            asked is not None
            and self.public_key is not None
            and is_signed_by(self.public_key, asked, self.deployment)
        )
        if not is_proven:
            raise RefusedError(
                RefusalCode.SIGNATURE_MISSING,
                f"Request id {request} was signed when it was first sent, so it is answered again "
                "only to whoever signs it with the same operator's key; sign it, or send another "
                "request id.",
            )


async def take_request(
    connection: AsyncConnection, asked: OperatorMessage, delivery: Delivery
) -> None:
    """Notes who brought a request first; refuses what may have been done already.

    A workflow remembers what it has accepted, but not for ever, and not when it was reset, or was
    terminated and started again: somebody could send it once more what was done.
    """
    of = {"workflow_id": asked.workflow_id, "request": asked.request_id}
    brought = {**of, "run": delivery.run, "number": delivery.number}
    taken_by = {"message": asked.message, "actor": str(asked.actor)}
    if (await connection.execute(_TAKE, {**brought, **taken_by})).rowcount:
        await connection.execute(_FORGET)
        return
    taken = (await connection.execute(_TAKEN, of)).one()
    if not delivery.is_remembered(taken.run, taken.number):
        raise RefusedError(
            RefusalCode.KEY_CONFLICT,
            f"Request id {asked.request_id} was used for the {taken.message} of {taken.actor} at "
            f"{taken.at:%Y-%m-%d %H:%M:%S}Z; if it still has to be done, send it under another "
            "request id.",
        )
