"""What admission asks before anything is placed: could any node ever take one replica?"""

from collections.abc import Iterable

import numpy as np

from durable.model.ids import RegionId, TenantId, WorkloadName
from durable.model.pending import Pending
from durable.model.workload import WorkloadSpec
from durable.scheduling.account import ask_lasting
from durable.scheduling.filters import LASTING
from durable.scheduling.question import Question
from durable.scheduling.snapshot.region import Snapshot
from durable.scheduling.waiting import told, why_closest_refused
from durable.scheduling.wish import Wish


def why_never(
    regions: Iterable[Snapshot], tenant: TenantId, workload: WorkloadName, spec: WorkloadSpec
) -> Pending | None:
    """Why no node of these regions could ever take one replica, or nothing if one could.

    Leases, cordons and what is in use are not looked at: they pass. A region without nodes says
    nothing, because its nodes may be still to come.
    """
    questions = [_question(region, tenant, workload, spec) for region in regions if len(region)]
    asked = [(question, ask_lasting(question)) for question in questions]
    if not asked or any(account.feasible for _, account in asked):
        return None
    closest = [account.refused[-1] for _, account in asked]
    reason = max((each.by for each in closest), key=LASTING.index)
    capacity = [
        question.columns.capacity[each.rows]
        for question, each in zip(questions, closest, strict=True)
        if each.by is reason
    ]
    lines = [line for question, account in asked for line in account.rejections(question)]
    line = told(lines, sum(len(question.snapshot) for question in questions))
    what = f"{tenant}/{workload}"
    return why_closest_refused(what, spec.resources, reason.pending, np.concatenate(capacity), line)


def _question(
    region: Snapshot, tenant: TenantId, workload: WorkloadName, spec: WorkloadSpec
) -> Question:
    return Question(
        region,
        Wish(
            region=RegionId(region.region),
            tenant=tenant,
            workload=workload,
            generation=1,
            attempt=1,
            slots=(0,),
            spec=spec,
        ),
    )
