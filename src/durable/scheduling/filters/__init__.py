"""Every reason why a node may not take the work, in the order in which they are asked.

A node counts under the first that refuses it. What no waiting mends comes first, so a node that is
refused for something later is one that could take the work some day; of those that never could,
taints come last: to tolerate one is the smallest change.
"""

from durable.scheduling.filters import company, health, marks, place, size
from durable.scheduling.filters.filter import Filter

# What only a change of the workload or of the fleet mends; also what admission asks.
LASTING = (
    place.REGIONS,
    place.ZONES,
    place.TENANCY,
    marks.LABELS,
    size.EVER,
    marks.TAINTS,
)

# With these, who is eligible: a zone counts for spread when it has such a node, full or not.
# A zone that is down therefore holds nobody back, but one that is full does.
ELIGIBLE = (
    place.REGION_OPEN,
    *LASTING,
    place.AVOIDED_ZONES,
    health.READY,
    health.CORDON,
    health.LEASE,
)

# What a placed replica may change for the next one on the same node.
MOVING = (*size.NOW, company.MAX_PER_NODE)

# With these, who is a candidate: spread may close and open a node again within one decision.
CANDIDATE = (*MOVING, company.CRASH_PAIR)

SPREAD = (company.ZONE_SPREAD, company.NODE_SPREAD)

FILTERS: tuple[Filter, ...] = (*ELIGIBLE, *CANDIDATE, *SPREAD)
