"""The search attributes by which operators find workflows, and their types."""

from temporalio.common import SearchAttributeKey

TENANT = SearchAttributeKey.for_keyword("DurableTenant")
WORKLOAD = SearchAttributeKey.for_keyword("DurableWorkload")
REGION = SearchAttributeKey.for_keyword("DurableRegion")
PHASE = SearchAttributeKey.for_keyword("DurablePhase")
PENDING_REASON = SearchAttributeKey.for_keyword("DurablePendingReason")

# SQL visibility has room for ten keywords in a namespace.
SEARCH_ATTRIBUTES = (TENANT, WORKLOAD, REGION, PHASE, PENDING_REASON)
