"""What was asked of an override and answered, by request id: a request counts once.

The answers are kept in the override's own row, so that they are written with the effect.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from durable.authority.operators.authorization import Authorizer
from durable.model.operators.rights import OperatorMessage
from durable.model.refusal import RefusalCode, RefusedError

# An override that was changed so often is not extended any more; everything else happens once.
MAX_REQUESTS = 100


def refuse_further(requests: Mapping[str, Any]) -> None:
    """Refuses the one change that could be made for ever."""
    if len(requests) >= MAX_REQUESTS:
        raise RefusedError(
            RefusalCode.WRONG_STATE,
            f"This override was changed {MAX_REQUESTS} times, so it is not extended any more; "
            "revoke it and propose another.",
        )


@dataclass(frozen=True)
class OverrideRequest:
    """A person's message: as it came, what it asks for in short, and its id."""

    asked: OperatorMessage
    digest: str

    @property
    def id(self) -> str:
        return self.asked.request_id

    @property
    def reason(self) -> str:
        return str(self.asked.payload["reason"])

    def recall(self, requests: Mapping[str, Any], authorizer: Authorizer) -> str | None:
        """What it was answered before; refused if its id was used for something else.

        Before rights and the age of a signature are asked: what was done stays answered.
        """
        known = requests.get(self.id)
        if known is None:
            return None
        if known["actor"] != str(self.asked.actor):
            raise RefusedError(
                RefusalCode.KEY_CONFLICT,
                f"Request id {self.id} was used by {known['actor']} at {known['at'][:19]}Z; send "
                "another request id.",
            )
        if (known["message"], known["digest"]) != (self.asked.message, self.digest):
            raise RefusedError(
                RefusalCode.KEY_CONFLICT,
                f"Request id {self.id} was used for the {known['message']} at {known['at'][:19]}Z, "
                "which is not this request; send another request id.",
            )
        authorizer.check_repetition(self.asked, was_signed=known["is_signed"])
        return str(known["answer"])

    def record(self, requests: Mapping[str, Any], answer: str, at: str) -> dict[str, Any]:
        """The requests with this one and its answer."""
        entry = {
            "message": self.asked.message, "digest": self.digest, "at": at, "answer": answer,
            "actor": str(self.asked.actor), "is_signed": self.asked.is_signed,
        }  # fmt: skip
        return {**requests, self.id: entry}
