"""Reasons to wait of which a case shows only the code, and the words if they matter."""

from durable.model.placement.pending import Pending
from durable.model.placement.pending_reasons import PendingCode
from durable.model.refusal import Refusal, RefusalCode


def pending(code: PendingCode, sentence: str = "That is why.") -> Pending:
    return Pending.refused(code, Refusal(code=RefusalCode.INVALID, sentence=sentence))
