"""Single facts that commands and services look up: what was admitted, where it runs, what if."""

from collections.abc import Sequence
from datetime import datetime

from durable.authority.audit.events import read_events
from durable.authority.db.clock import read_time
from durable.authority.db.connection import Databases
from durable.authority.db.errors import AuthorityUnreachableError
from durable.authority.db.everywhere import Answers, UnreachableRegions, ask_regions
from durable.authority.fleet.node_reads import read_node
from durable.authority.fleet.node_targets import locate_nodes
from durable.authority.fleet.policies import read_recovery_policy, read_revision
from durable.authority.policies.rows import read_rollout
from durable.authority.reads.claims import ClaimFilter, read_claims
from durable.authority.reads.replicas import read_replicas
from durable.authority.reads.shares import read_shares
from durable.authority.workloads.generations import list_generations, unknown_generation
from durable.authority.workloads.rows import read_workload
from durable.explain.explain import explain, require_workload
from durable.explain.explanation import Explanation
from durable.model.fleet.capacity import Node
from durable.model.fleet.drain import NodesKind, NodesTarget
from durable.model.ids import Identifier, PolicyRevision, RegionId, Slot, TenantId, WorkloadName
from durable.model.placement.claims import ObservedSlot, RegionalClaim
from durable.model.placement.records import AuditEvent
from durable.model.policy.policy import Policy
from durable.model.policy.rollout import PolicyRollout, ShadowReport
from durable.model.recovery.readiness import LossOutlook
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.work.rollout import GenerationRecord
from durable.model.work.workload import AdmittedWorkload
from durable.plan.planner import Planner
from durable.plan.readiness import Readiness
from durable.plan.shadow import Shadow
from durable.resources.resource import AskWorkflows, Sources, unasked
from durable.scheduling.policies import policy_problems, read_policy
from durable.signals.names import placement_id
from durable.validation.problems import Location


def names_of(tenant: str, name: str) -> tuple[TenantId, WorkloadName]:
    try:
        return TenantId(tenant), WorkloadName(name)
    except ValueError as error:
        raise RefusedError(RefusalCode.UNKNOWN_WORKLOAD, f"No such workload: {error}.") from None


class Lookups:
    """What one may ask of the authority beside lists."""

    def __init__(self, databases: Databases, workflows: AskWorkflows = unasked) -> None:
        self.databases = databases
        self.sources = Sources(databases, workflows)

    # ── a workload ──────────────────────────────────────────────────────────────────────────────

    async def admitted(self, tenant: str, name: str) -> AdmittedWorkload | None:
        """A workload as it was last admitted, even if it ended; None if it never was."""
        return await read_workload(self.databases, *names_of(tenant, name))

    async def explain(
        self,
        tenant: str,
        name: str,
        *,
        generation: int | None = None,
        slot: int | None = None,
        attempt: int | None = None,
    ) -> Explanation:
        """Why a workload is where it is: decisions, what came of them, and who acts next."""
        return await explain(
            self.databases,
            *names_of(tenant, name),
            generation=generation,
            slot=slot,
            attempt=attempt,
        )

    async def generations(self, tenant: str, name: str) -> list[GenerationRecord]:
        """The last generations, oldest first: who wanted each, and what became of it."""
        workload = names_of(tenant, name)
        await require_workload(self.databases, *workload)
        return await list_generations(self.databases, *workload)

    async def generation(self, tenant: str, name: str, number: int) -> GenerationRecord:
        """One generation of the history, or a refusal that names those that are known."""
        known = {one.generation: one for one in await self.generations(tenant, name)}
        if number not in known:
            raise unknown_generation(*names_of(tenant, name), number, known)
        return known[number]

    async def slots_by_placement(self, workload: AdmittedWorkload) -> dict[str, set[Slot]]:
        """Every placement that has slots, of whichever generation: a slot is where it runs.

        Of a region whose database does not answer, the placement that is wanted there.
        """
        name = (workload.tenant, workload.workload)
        answers = await ask_regions(
            await self.sources.select_regions(),
            lambda region: read_replicas(self.databases, region, *name),
        )
        shares = {
            (workload.generation, region): set(workload.share.get(region, ()))
            for region in answers.unreachable
        }
        running: dict[Slot, tuple[int, RegionId]] = {}
        for region, there in answers.by_region.items():
            for generation, share in there.shares.items():
                shares[generation, region] = set(share.slots)
            running |= {claim.slot: (claim.generation, region) for claim in there.claims}
        for slots in shares.values():
            slots.difference_update(running)
        for slot, share in running.items():
            shares.setdefault(share, set()).add(slot)
        return {
            placement_id(*name, *share): slots for share, slots in sorted(shares.items()) if slots
        }

    async def bound_slot(
        self, tenant: str, name: str, slot: Slot
    ) -> tuple[ObservedSlot, Node] | None:
        """A slot as it was last observed, and its node; None if it is bound nowhere."""
        workload = names_of(tenant, name)
        answers = await ask_regions(
            await self.sources.select_regions(),
            lambda region: read_shares(self.databases, region, *workload),
        )
        for region, shares in answers.by_region.items():
            for one in (slot for share in shares for slot in share.slots):
                if one.slot == slot:
                    return one, await read_node(self.databases, region, one.node)
        for sentence in answers.unreachable.values():
            raise AuthorityUnreachableError(sentence)
        return None

    async def stops(self, tenant: str, name: str) -> list[RegionalClaim]:
        """The workload's claims that are being stopped, in all regions that answer."""
        tenant_id, workload = names_of(tenant, name)
        which = ClaimFilter(tenant=tenant_id, workload=workload)
        answers = await ask_regions(
            await self.sources.select_regions(),
            lambda region: read_claims(self.databases, region, which),
        )
        claims = (claim for found in answers.by_region.values() for claim in found)
        return [claim for claim in claims if claim.stop_requested]

    # ── the fleet ───────────────────────────────────────────────────────────────────────────────

    async def locate(
        self, kind: NodesKind, name: Identifier, region: RegionId | None = None
    ) -> NodesTarget:
        """The region that has such nodes; refused if none does, or more than one."""
        return await locate_nodes(self.databases, kind, name, region)

    async def events(
        self,
        *,
        chain: str | None = None,
        target: str | None = None,
        actor: str | None = None,
        since: datetime | None = None,
        last: int = 50,
    ) -> tuple[Sequence[AuditEvent], UnreachableRegions]:
        """The newest events of the audit, oldest first, and the regions that did not answer."""
        return await read_events(
            self.databases, chain=chain, target=target, actor=actor, since=since, last=last
        )

    # ── what if ─────────────────────────────────────────────────────────────────────────────────

    def planner(self) -> Planner:
        """Plans one manifest after the other, each as those before it would leave the fleet."""
        return Planner(self.databases)

    async def readiness(self, region: RegionId | None = None) -> list[LossOutlook]:
        """What the loss of each region, or of this one, would mean now."""
        regions = await self.sources.select_regions(region)
        policy, now = await read_recovery_policy(self.databases), await read_time(self.databases)
        return await Readiness(self.databases).outlooks(regions, policy, now)

    # ── a policy ────────────────────────────────────────────────────────────────────────────────

    async def policy(self, revision: PolicyRevision) -> Policy:
        """The content of a revision, with the defaults of this release for what it lacks."""
        return read_policy((await read_revision(self.databases, revision)).spec)

    async def policy_rollout(self, revision: PolicyRevision) -> PolicyRollout:
        """How far a revision has come, and the number of its last order."""
        return await read_rollout(self.databases, revision)

    async def shadow(
        self, revision: PolicyRevision, region: RegionId | None = None
    ) -> Answers[ShadowReport]:
        """Recent decisions made again under a revision, and what would have changed."""
        policy = await self.policy(revision)
        regions = await self.sources.select_regions(region)
        return await Shadow(self.databases, policy, revision).compare_all(regions)

    @staticmethod
    def policy_problems(policy: Policy) -> list[tuple[Location, str]]:
        """What is wrong with a policy that no type can refuse, with the place of each."""
        return policy_problems(policy)
