"""Whether any node of a region could ever take one replica, checked before admission."""

from durable.model.ids import RegionId, TenantId, WorkloadName
from durable.model.placement.pending import Pending
from durable.model.placement.pending_reasons import NoNode
from durable.model.refusal import Refusal, RefusalCode
from durable.model.work.workload import WorkloadSpec
from durable.scheduling.evidence import filter_lasting
from durable.scheduling.filters import labels, residency, resources, taints, tenancy
from durable.scheduling.pending import largest_of, most_frequent
from durable.scheduling.regions.room import request_for_one
from durable.scheduling.snapshot.region import Snapshot
from durable.scheduling.working_set import WorkingSet

_CODES = {
    residency.REGIONS.code: RefusalCode.RESIDENCY,
    residency.ZONES.code: RefusalCode.RESIDENCY,
    tenancy.TENANCY.code: RefusalCode.TENANCY,
    labels.LABELS.code: RefusalCode.REQUIRED_LABELS,
    resources.NEVER_FITS.code: RefusalCode.NEVER_FITS,
    taints.TAINTS.code: RefusalCode.TAINTED,
}


def why_never(
    kinds: Snapshot, tenant: TenantId, workload: WorkloadName, spec: WorkloadSpec
) -> Refusal | None:
    """Why no node of a region could ever take one replica, or nothing if one could.

    The snapshot has one node of each kind. Leases, cordons and what is in use are not looked at:
    they pass. A region without nodes refuses nothing, because its nodes may be still to come.
    """
    working = WorkingSet(kinds, request_for_one(RegionId(kinds.region), tenant, workload, spec))
    rejections = filter_lasting(working)
    if rejections.closest is None or rejections.feasible:
        return None
    lines = rejections.counted(working)
    no_node = NoNode(
        region=kinds.region,
        workload=f"{tenant}/{workload}",
        nodes=len(kinds),
        counts_kinds=True,
        rejections=most_frequent(lines),
        rejected=sum(line.nodes for line in lines),
        requested=spec.resources,
        largest=largest_of(working.columns.capacity[rejections.closest.rows]),
    )
    closest = rejections.closest.by
    sentence = Pending.because(closest.pending, no_node).sentence
    return Refusal(code=_CODES[closest.code], sentence=sentence)
