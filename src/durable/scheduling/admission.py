"""What admission asks before anything is placed: could any node ever take one replica?"""

from durable.model.ids import RegionId, TenantId, WorkloadName
from durable.model.pending import Pending
from durable.model.pending_reasons import NoNode
from durable.model.refusal import Refusal, RefusalCode
from durable.model.workload import WorkloadSpec
from durable.scheduling.account import ask_lasting
from durable.scheduling.filters import marks, place, size
from durable.scheduling.question import Question
from durable.scheduling.snapshot.region import Snapshot
from durable.scheduling.waiting import largest_of, most_frequent
from durable.scheduling.wish import Wish

_CODES = {
    place.REGIONS.code: RefusalCode.RESIDENCY,
    place.ZONES.code: RefusalCode.RESIDENCY,
    place.TENANCY.code: RefusalCode.TENANCY,
    marks.LABELS.code: RefusalCode.REQUIRED_LABELS,
    size.EVER.code: RefusalCode.NEVER_FITS,
    marks.TAINTS.code: RefusalCode.TAINTED,
}


def why_never(
    kinds: Snapshot, tenant: TenantId, workload: WorkloadName, spec: WorkloadSpec
) -> Refusal | None:
    """Why no node of a region could ever take one replica, or nothing if one could.

    The snapshot has one node of each kind. Leases, cordons and what is in use are not looked at:
    they pass. A region without nodes refuses nothing, because its nodes may be still to come.
    """
    question = Question(kinds, _wish(kinds, tenant, workload, spec))
    account = ask_lasting(question)
    if account.closest is None or account.feasible:
        return None
    rejections = account.rejections(question)
    no_node = NoNode(
        region=kinds.region,
        workload=f"{tenant}/{workload}",
        nodes=len(kinds),
        counts_kinds=True,
        rejections=most_frequent(rejections),
        rejected=sum(line.nodes for line in rejections),
        requested=spec.resources,
        largest=largest_of(question.columns.capacity[account.closest.rows]),
    )
    closest = account.closest.by
    sentence = Pending.because(closest.pending, no_node).sentence
    return Refusal(code=_CODES[closest.code], sentence=sentence)


def _wish(kinds: Snapshot, tenant: TenantId, workload: WorkloadName, spec: WorkloadSpec) -> Wish:
    return Wish(
        region=RegionId(kinds.region),
        tenant=tenant,
        workload=workload,
        generation=1,
        attempt=1,
        slots=(0,),
        spec=spec,
    )
