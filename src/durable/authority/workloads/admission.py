"""Taking workloads in: those that are asked for within milliseconds share one transaction."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from durable.authority.audit import chain as audit
from durable.authority.db.batching import Batcher, chunks
from durable.authority.db.connection import Databases, transact
from durable.authority.workloads import bulk as many_rows
from durable.authority.workloads.answers import Answers
from durable.authority.workloads.bulk import WorkloadKey
from durable.authority.workloads.deciding import Ask, ShareOf, Turns, template_of
from durable.authority.workloads.rows import ROLE, Admission
from durable.model.ids import ActorId
from durable.model.refusal import Refusal, RefusalCode, RefusedError
from durable.model.workload import WorkloadManifest

__all__ = [
    "AdmissionQueue",
    "Answered",
    "admit_workload",
    "admit_workloads",
    "template_of",
]

MAX_ASKS_PER_CALL = 200
# Each replica is written three times: in the share, in the answer and in the audit.
MAX_REPLICAS_PER_CALL = 20_000
_TENANTS_TOLD = 5

_TENANTS = text("SELECT tenant FROM global.tenants ORDER BY tenant LIMIT :most")


@dataclass(frozen=True)
class Answered:
    """What a request was answered, now or when it first came, and the workload as it stands."""

    answer: Admission
    current: Admission
    # Whether there was such a workload before this came, deleted or not.
    existed: bool = field(compare=False)


async def admit_workloads(databases: Databases, asks: Sequence[Ask]) -> list[Answered | Refusal]:
    """Admits manifests in their order, in one transaction; one that is refused leaves nothing."""
    assert len(asks) <= MAX_ASKS_PER_CALL, f"at most {MAX_ASKS_PER_CALL} asks per call"

    async def work(connection: AsyncConnection) -> list[Answered | Refusal]:
        there, missing = await many_rows.find(connection, [ask.key for ask in asks])
        # A row stays for ever, so none is made for a workload of which nothing will be admitted.
        wanted = {ask.key for ask in asks if ask.key in missing and _may_be_first(ask)}
        created = await many_rows.create(connection, wanted) if wanted else set[WorkloadKey]()
        standing = await many_rows.lock(connection, (there | wanted) - created)
        answers = await Answers.read(connection, [ask.asked for ask in asks])
        turns = Turns(standing, answers)
        known = there | missing
        outcomes = [turns.take(ask) if ask.key in known else None for ask in asks]
        assert created <= turns.changed.keys(), "no row is left empty"
        if turns.changed:
            await many_rows.write(connection, turns.changed.values())
            await audit.append_all(connection, audit.GLOBAL_CHAIN, turns.events)
        await answers.write(connection)
        tenants = await _tenants(connection) if None in outcomes else ""
        return [
            _told(ask, outcome, turns, tenants, existed=ask.key not in created)
            for ask, outcome in zip(asks, outcomes, strict=True)
        ]

    names = ", ".join("/".join(ask.key) for ask in asks[:3]) + (", ..." if len(asks) > 3 else "")
    return await transact(databases.at_global(ROLE), work, doing=f"apply workload {names}")


async def admit_workload(
    databases: Databases,
    manifest: WorkloadManifest,
    *,
    request: str,
    actor: ActorId,
    share_of: ShareOf,
) -> Admission:
    """Admits one manifest; see `Ask`."""
    (outcome,) = await admit_workloads(databases, [Ask(manifest, request, actor, share_of)])
    if isinstance(outcome, Refusal):
        raise RefusedError(outcome.code, outcome.sentence)
    return outcome.answer


class AdmissionQueue(Batcher[Ask, Answered | Refusal]):
    """The writer of admissions; those that arrive together share a transaction."""

    def __init__(self, databases: Databases) -> None:
        async def work(asks: list[Ask]) -> list[Answered | Refusal]:
            answers: list[Answered | Refusal] = []
            for some in chunks(asks, _replicas, most=MAX_REPLICAS_PER_CALL):
                answers += await admit_workloads(databases, some)
            return answers

        super().__init__("admission queue", "request", work, max_batch=MAX_ASKS_PER_CALL)


def _may_be_first(ask: Ask) -> bool:
    return not isinstance(ask.first_share, RefusedError)


def _replicas(ask: Ask) -> int:
    return ask.manifest.spec.replicas


def _told(
    ask: Ask,
    outcome: Admission | Refusal | None,
    turns: Turns,
    tenants: str,
    *,
    existed: bool,
) -> Answered | Refusal:
    if outcome is None:
        return Refusal(
            code=RefusalCode.UNKNOWN_TENANT,
            sentence=f"There is no tenant {ask.key[0]}; known are: {tenants or 'none'}.",
        )
    if isinstance(outcome, Refusal):
        return outcome
    # Of several asks of one workload, each is told what the last one left.
    return Answered(outcome, turns.standing[ask.key], existed)


async def _tenants(connection: AsyncConnection) -> str:
    names = list((await connection.execute(_TENANTS, {"most": _TENANTS_TOLD + 1})).scalars())
    return ", ".join(names[:_TENANTS_TOLD]) + (", ..." if len(names) > _TENANTS_TOLD else "")
