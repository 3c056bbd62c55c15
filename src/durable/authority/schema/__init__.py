"""The tables of the authority, with the constraints that keep them true.

Two sides that never meet in one transaction: `global` (tenants, quotas, policies, overrides) and
`regional` (nodes, grants, reservations, bindings). They may live in one database or in several.
Counters (`used_*`, `granted_*` sums) are written by triggers alone (`counters.sql`).
"""

from durable.authority.schema import global_side, overrides, records, regional_side
from durable.authority.schema.columns import metadata

__all__ = ["global_side", "metadata", "overrides", "records", "regional_side"]
