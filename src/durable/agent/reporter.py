"""Reports observations to the authority in batches, until it has accepted the newest of each."""

import asyncio

from durable.agent.leases import Leases, Timing
from durable.agent.log import FailureLog, Log
from durable.agent.reconciler import ReplicaReconciler
from durable.agent.replicas import Replicas
from durable.authority.db.connection import Databases
from durable.authority.db.errors import AuthorityError
from durable.authority.fleet.observations import Observation, observe
from durable.failpoints import Failpoint, reach
from durable.model.ids import ActorId, RegionId
from durable.model.refusal import Refusal, RefusalCode

MAX_BATCH = 2_000


class Reporter:
    """Sends the pending reports; what is not accepted stays pending."""

    def __init__(
        self,
        databases: Databases,
        region: RegionId,
        observer: ActorId,
        replicas: Replicas,
        leases: Leases,
        reconciler: ReplicaReconciler,
        timing: Timing,
        log: Log,
    ) -> None:
        self._databases = databases
        self._region = region
        self._observer = observer
        self._replicas = replicas
        self._leases = leases
        self._reconciler = reconciler
        self._timing = timing
        self._failures = FailureLog(log)

    async def run(self, session_ended: asyncio.Event) -> None:
        """Sends whenever there is news; sets `session_ended` when a node must register again."""
        while True:
            await self._replicas.changed.wait()
            await asyncio.sleep(self._timing.gather_seconds)
            self._replicas.changed.clear()
            try:
                while batch := self._batch():
                    async with asyncio.timeout(self._timing.call_seconds):
                        answers = await self._send(batch)
                    if await self._settle(batch, answers):
                        session_ended.set()
                    self._failures.recovered("report")
            except (AuthorityError, TimeoutError) as error:
                self._failures.failed("report", error)
                self._replicas.changed.set()
                await asyncio.sleep(self._timing.retry_seconds)

    def _batch(self) -> list[Observation]:
        batch: list[Observation] = []
        for token, number in self._replicas.pending_reports.in_order():
            replica = self._replicas.get(token)
            if replica is None or replica.state is None or replica.is_foreign:
                continue
            session = self._leases.sessions.get(replica.assignment.node)
            # Without a session it would be refused, so it waits for the registration.
            if session is None:
                continue
            batch.append(
                Observation(
                    token=token,
                    node=replica.assignment.node,
                    session=session,
                    sequence=number,
                    state=replica.state,
                    evidence=replica.evidence,
                    log_directory=replica.log_directory,
                    exit_code=replica.exit_code,
                )
            )
            if len(batch) == MAX_BATCH:
                break
        return batch

    async def _send(self, batch: list[Observation]) -> list[Refusal | None]:
        reach(Failpoint.BEFORE_OBSERVE)
        answers = await observe(self._databases, self._region, batch, observer=self._observer)
        reach(Failpoint.AFTER_OBSERVE)
        return answers

    async def _settle(self, batch: list[Observation], answers: list[Refusal | None]) -> bool:
        """Removes what was accepted; whether any report came from a session that has ended."""
        is_fenced = False
        for report, refusal in zip(batch, answers, strict=True):
            if refusal is not None and refusal.code is RefusalCode.FENCED_AGENT:
                self._leases.end_session(report.node, report.session)
                is_fenced = True
                continue
            self._replicas.pending_reports.accepted(report.token, report.sequence)
            replica = self._replicas.get(report.token)
            if refusal is not None and replica is not None:
                await self._reconciler.end(replica)
        return is_fenced
