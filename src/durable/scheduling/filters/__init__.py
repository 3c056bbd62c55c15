"""Every reason why a node may not take the work, in the order in which they are checked.

A node counts under the first filter that rejects it. What no waiting mends comes first, so a node
that is rejected for something later could take the work some day; of those that never could, taints
come last: to tolerate one is the smallest change.
"""

from durable.scheduling.filters import (
    cordon,
    crashes,
    devices,
    health,
    labels,
    lease,
    max_per_node,
    overrides,
    region_fence,
    residency,
    resources,
    spread,
    taints,
    tenancy,
)
from durable.scheduling.filters.filter import Filter

# Only a change of the workload or of the fleet mends these; admission checks them too.
LASTING = (
    residency.REGIONS,
    residency.ZONES,
    tenancy.TENANCY,
    labels.LABELS,
    resources.NEVER_FITS,
    taints.TAINTS,
)

# With these, who is eligible: a zone counts for spread when it has such a node, full or not.
# A zone that is down therefore holds nobody back, but one that is full does.
ELIGIBLE = (
    region_fence.REGION_FENCE,
    *LASTING,
    overrides.OVERRIDES,
    health.READY,
    cordon.CORDON,
    lease.LEASE,
)

# What a placed replica may change for the next one on the same node.
CHANGING = (*resources.INSUFFICIENT, devices.DEVICES, max_per_node.MAX_PER_NODE)

# With these, who is a candidate: spread may close and open a node again within one decision.
CANDIDATE = (*CHANGING, crashes.CRASHES)

SPREAD = (spread.ZONE_SKEW, spread.NODE_SKEW)

FILTERS: tuple[Filter, ...] = (*ELIGIBLE, *CANDIDATE, *SPREAD)
