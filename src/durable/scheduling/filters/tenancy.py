"""A node dedicated to a tenant is for that tenant alone, and some work runs only on such nodes."""

from collections import Counter

from durable.model.placement.pending_reasons import PendingCode
from durable.scheduling.filters.filter import Filter, count_by_id
from durable.scheduling.snapshot.columns import NO_ID, Mask, Rows
from durable.scheduling.working_set import RowSelection, WorkingSet


def _not_for_tenant(working: WorkingSet, rows: RowSelection) -> Mask:
    owner = working.columns.dedicated_to[rows]
    tenant = working.snapshot.tenants.find(working.request.tenant)
    # A tenant that owns no node has no id, and neither has the owner of a shared node.
    own = (owner == tenant) & (owner != NO_ID)
    return ~own if working.request.spec.requirements.dedicated else ~own & (owner != NO_ID)


def _words(working: WorkingSet, rows: Rows) -> Counter[str]:
    names = working.snapshot.tenants.values

    def words(owner: int) -> str:
        return "shared, not dedicated" if owner == NO_ID else f"kept for {names[owner]}"

    return count_by_id(working.columns.dedicated_to[rows], words)


TENANCY = Filter("tenancy", PendingCode.REQUIREMENTS, _not_for_tenant, _words)
