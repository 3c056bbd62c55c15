"""What a service requests of a rollout: pause, resume, promote, roll back; and replacements."""

import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pydantic import ValidationError

from durable.authority.db.connection import Databases
from durable.authority.workloads.generations import list_generations
from durable.authority.workloads.ledger import Answer, RequestIdentity, RequestKind
from durable.authority.workloads.rows import never_admitted, read_workload
from durable.model.ids import ActorId, TenantId, WorkloadName
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.work.rollout import GenerationRecord
from durable.signals.payloads import (
    OperatorRequest,
    PauseRollout,
    PromoteRollout,
    ReplaceSlots,
    ResumeRollout,
    RollBack,
)
from durable.validation.problems import in_one_line, problems_in

T = TypeVar("T")
P = TypeVar("P", bound=OperatorRequest)

REASON = "requested through the SDK"


class RolloutUpdates(ABC):
    """The part of the SDK that changes rollouts; each request counts once by its id."""

    actor: ActorId
    databases: Databases

    @abstractmethod
    async def _update(
        self,
        request: RequestIdentity,
        message: OperatorRequest,
        answer: type[T],
        read: Callable[[Answer], T],
    ) -> T:
        """Asks the workload's workflow; if it is gone, one that begins with what exists."""

    async def pause(
        self, tenant: str, name: str, *, request_id: str | None = None, reason: str = REASON
    ) -> str:
        """Replaces nothing more of a rollout until somebody resumes it."""
        message = self._message(PauseRollout, request_id, reason)
        return await self._ask(RequestKind.PAUSE, tenant, name, message, {})

    async def resume(
        self, tenant: str, name: str, *, request_id: str | None = None, reason: str = REASON
    ) -> str:
        """Goes on with a rollout that was paused."""
        message = self._message(ResumeRollout, request_id, reason)
        return await self._ask(RequestKind.RESUME, tenant, name, message, {})

    async def promote(
        self, tenant: str, name: str, *, request_id: str | None = None, reason: str = REASON
    ) -> str:
        """Goes on past a pause point of the spec."""
        message = self._message(PromoteRollout, request_id, reason)
        return await self._ask(RequestKind.PROMOTE, tenant, name, message, {})

    async def rollback(
        self,
        tenant: str,
        name: str,
        *,
        to: int | None = None,
        request_id: str | None = None,
        reason: str = REASON,
    ) -> str:
        """Goes back to the last generation that was good, or to another one that was."""
        message = self._message(RollBack, request_id, reason, to=to)
        payload = {} if to is None else {"to": to}
        return await self._ask(RequestKind.ROLLBACK, tenant, name, message, payload)

    async def replace(
        self,
        tenant: str,
        name: str,
        *,
        slots: Sequence[int] = (),
        request_id: str | None = None,
        reason: str = REASON,
    ) -> str:
        """Replaces slots (all if none is named), each up before another is stopped."""
        message = self._message(ReplaceSlots, request_id, reason, slots=tuple(slots))
        return await self._ask(RequestKind.REPLACE, tenant, name, message, {"slots": sorted(slots)})

    async def generations(self, tenant: str, name: str) -> list[GenerationRecord]:
        """The last generations, the oldest first: what each was, who wanted it, how it ended."""
        of = names_of(tenant, name)
        found = await list_generations(self.databases, *of)
        if not found and await read_workload(self.databases, *of) is None:
            raise never_admitted(*of)
        return found

    def _message(self, kind: type[P], request_id: str | None, reason: str, **fields: Any) -> P:
        content = {
            **fields,
            "actor": self.actor,
            "reason": reason,
            "request_id": request_id_of(request_id),
        }
        try:
            return kind.model_validate(content)
        except ValidationError as error:
            problems = in_one_line(problems_in(error, kind))
            raise RefusedError(
                RefusalCode.INVALID, f"The request is wrong: {problems}"[:500]
            ) from None

    async def _ask(
        self,
        kind: RequestKind,
        tenant: str,
        name: str,
        message: OperatorRequest,
        payload: dict[str, Any],
    ) -> str:
        of = names_of(tenant, name)
        identity = RequestIdentity(*of, message.request_id, kind, payload, self.actor)
        return await self._update(identity, message, str, lambda answer: str(answer["answer"]))


def names_of(tenant: str, name: str) -> tuple[TenantId, WorkloadName]:
    try:
        return TenantId(tenant), WorkloadName(name)
    except ValueError as error:
        raise RefusedError(RefusalCode.UNKNOWN_WORKLOAD, f"No such workload: {error}.") from None


def request_id_of(given: str | None) -> str:
    return f"request-{uuid.uuid4()}" if given is None else given
