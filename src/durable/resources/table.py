"""Every resource, one row each: what `durable get` lists and `Durable.get` reads."""

from typing import Any

from durable.model.operators.rights import Operator
from durable.model.placement.request import QueuedRequest
from durable.model.recovery.recoveries import Recovery, RecoveryProgress
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.work.phases import WorkloadPhase
from durable.plan.grants import GrantReport
from durable.resources import fleet, orders, workloads
from durable.resources.resource import Resource

_LOAD_A_FLEET = "load a fleet with `durable fleet load -f FILE`"
_GONE = frozenset({WorkloadPhase.COMPLETE, WorkloadPhase.FAILED, WorkloadPhase.DELETED})

WORKLOADS = Resource[workloads.WorkloadRow](
    name="workloads",
    singular="workload",
    short="wl",
    sentence="List workloads with their phase and replica counts.",
    read=workloads.read_workloads,
    columns=(
        "workload", "phase", "wanted", "bound", "ready", "serving", "updated", "waiting",
        "completed", "failures", "kind", "generation", "priority", "deadline", "seconds_left",
        "ended_at", "problem",
    ),
    filters=("tenant", "ended", "limit"),
    remedy="create one with `durable apply -f FILE`",
    has_ended=lambda row: row.phase in _GONE,
    unknown=RefusalCode.UNKNOWN_WORKLOAD,
)  # fmt: skip

PLACEMENTS = Resource[workloads.PlacementRow](
    name="placements",
    singular="placement",
    short="pl",
    sentence="List each region's share of each workload, what it waits for, and who holds it.",
    read=workloads.read_placements,
    columns=("placement", "state", "placed", "serving", "waiting", "pending", "problem"),
    filters=("tenant", "region", "limit"),
    remedy="create a workload with `durable apply -f FILE`",
    unknown=RefusalCode.UNKNOWN_PLACEMENT,
)

DECISIONS = Resource[workloads.DecisionRow](
    name="decisions",
    singular="decision",
    sentence="List the latest scheduling decisions on a workload; durable explain shows them in "
    "full.",
    read=workloads.read_decisions_on,
    columns=(
        "region", "generation", "attempt", "decided_at", "repeats", "repeated_at", "placed",
        "unplaced", "pending",
    ),
    filters=("workload", "region", "last"),
    remedy="`durable explain {workload}` shows what it waits for",
    unknown=RefusalCode.UNKNOWN_ATTEMPT,
)  # fmt: skip

GENERATIONS = Resource[workloads.GenerationRow](
    name="generations",
    singular="generation",
    short="gen",
    sentence="List the last generations of a workload: who wanted each, why, and what became of "
    "it.",
    read=workloads.read_generations,
    columns=(
        "generation",
        ("Current", lambda row: "*" if row.is_current else None),
        ("Who", lambda row: row.actor),
        ("Why", lambda row: row.reason),
        ("When", lambda row: row.admitted_at),
        "outcome",
        ("Outcome reason", lambda row: row.outcome_reason or None),
    ),
    filters=("workload",),
    remedy="apply it with `durable apply -f FILE`",
    unknown=RefusalCode.UNKNOWN_GENERATION,
)

QUEUE = Resource[QueuedRequest](
    name="queue",
    singular="request",
    sentence="Show who waits for a node, in order, and what for.",
    read=workloads.read_waiting,
    columns=(
        ("Workload", lambda row: f"{row.tenant}/{row.workload} g{row.generation}"),
        "region",
        "position",
        "waiting",
        "priority",
        ("Age", lambda row: f"{row.age_seconds:.0f} s"),
        ("Next retry", lambda row: row.next_retry_at or "on wakeup"),
        ("Waits for", lambda row: row.pending),
    ),
    filters=("region",),
    hidden=frozenset({"spec"}),
    remedy="",
    empty="Nothing is waiting.",
    unknown=RefusalCode.UNKNOWN_WORKLOAD,
)

NODES = Resource[fleet.NodeRow](
    name="nodes",
    singular="node",
    short="no",
    sentence="List nodes with their capacity, their use, and whether their lease is live.",
    read=fleet.read_nodes,
    columns=(
        "node", "region", "zone", "pool", "capacity", "used", "state", "live", "cordoned",
        "cordoned_by", "dedicated_to",
    ),
    filters=("region", "limit"),
    remedy=_LOAD_A_FLEET,
    unknown=RefusalCode.UNKNOWN_NODE,
)  # fmt: skip

REGIONS = Resource[fleet.RegionRow](
    name="regions",
    singular="region",
    short="rg",
    sentence="List regions: their state, what they are taken for, since when, why, and their live "
    "nodes.",
    read=fleet.read_region_rows,
    columns=(
        "region", "state", "epoch", "version", "nodes", "live", "capacity", "used", "seen",
        "since", "why", "maintenance",
    ),
    remedy=_LOAD_A_FLEET,
    unknown=RefusalCode.UNKNOWN_REGION,
)  # fmt: skip

TENANTS = Resource[fleet.TenantRow](
    name="tenants",
    singular="tenant",
    short="tn",
    sentence="List tenants with their hard quota, and how much of it is granted and used.",
    read=fleet.read_tenants,
    columns=("tenant", "hard", "target", "protected", "granted", "used"),
    remedy=_LOAD_A_FLEET,
    unknown=RefusalCode.UNKNOWN_TENANT,
)

GRANTS = Resource[GrantReport](
    name="grants",
    singular="grant",
    sentence="List what each region was granted of each quota, who waits for more, and who hoards "
    "it.",
    read=fleet.read_grants,
    columns=("tenant", "region", "granted", "used", "needs", "standing", "note"),
    filters=("tenant", "region", "limit"),
    remedy=_LOAD_A_FLEET,
    unknown=RefusalCode.UNKNOWN_TENANT,
)

BUDGETS = Resource[fleet.BudgetRow](
    name="budgets",
    singular="budget",
    sentence="List what regions keep for recovery, what is drawn on it, by whom, and until when.",
    read=fleet.read_budgets,
    columns=(
        "budget", "region", "amount", ("Drawn", lambda row: row.used), "state", "incident",
        "expires_at",
    ),
    filters=("region", "limit"),
    remedy="keep some with durable override create recovery-budget, or in the fleet's manifest",
    unknown=RefusalCode.UNKNOWN_BUDGET,
)  # fmt: skip

DRAINS = Resource[orders.DrainRow](
    name="drains",
    singular="drain",
    sentence="List drains with how many replicas they have moved, and what they wait for.",
    read=orders.read_drain_rows,
    columns=(
        "drain", "state", "moved", "waits_for", ("By", lambda row: row.actor), "reason",
        "started_at", "deadline_at",
    ),
    filters=("region", "ended", "limit"),
    remedy="begin one with `durable drain NODE`; --all lists those that ended",
    show=orders.show_drain,
    has_ended=lambda row: row.ended_at is not None,
    unknown=RefusalCode.UNKNOWN_DRAIN,
)  # fmt: skip

OVERRIDES = Resource[orders.OverrideRow](
    name="overrides",
    singular="override",
    short="ov",
    sentence="List overrides with who proposed them, the time left, and their effect so far.",
    read=orders.read_override_rows,
    columns=(
        ("Override", lambda row: row.id), "kind", "scope", "state", "left",
        ("By", lambda row: row.actor), "reason", ("Effect", lambda row: row.so_far),
    ),
    filters=("ended", "limit"),
    remedy="propose one with `durable override create KIND`; --all lists those that ended",
    show=orders.show_override,
    has_ended=lambda row: row.has_ended,
    unknown=RefusalCode.UNKNOWN_OVERRIDE,
)  # fmt: skip


def _recovery_of(shown: Recovery | RecoveryProgress) -> Recovery:
    return shown.recovery if isinstance(shown, RecoveryProgress) else shown


RECOVERIES = Resource[Recovery](
    name="recoveries",
    singular="recovery",
    sentence="List the recoveries of lost regions, the newest first.",
    read=orders.read_recoveries,
    columns=(
        ("Recovery", lambda row: row.key), "region", "phase", ("By", lambda row: row.actor),
        "reason", "started_at", "ended_at",
    ),
    filters=("ended", "limit"),
    remedy="nothing is lost; --all lists those that ended",
    show=orders.show_recovery,
    has_ended=lambda shown: _recovery_of(shown).has_ended,
    unknown=RefusalCode.UNKNOWN_REGION,
)  # fmt: skip

POLICIES = Resource[orders.PolicyRow](
    name="policies",
    singular="policy",
    sentence="List the revisions of the scheduler policy, the newest first, and where each is in "
    "force.",
    read=orders.read_policies,
    columns=(
        "revision",
        "phase",
        (
            "In force",
            lambda row: (
                ", ".join(f"{name} ({state})" for name, state in row.in_force.items()) or None
            ),
        ),
        ("By", lambda row: row.actor),
        ("Reason", lambda row: row.reason or None),
        "published_by",
        "published_at",
    ),
    remedy="load a fleet",
    show=orders.show_policy,
    has_ended=lambda shown: shown.rollout.is_settled,
    unknown=RefusalCode.UNKNOWN_POLICY,
)

OPERATORS = Resource[Operator](
    name="operators",
    singular="operator",
    short="op",
    sentence="List the people and services that may change something.",
    read=orders.read_operators,
    columns=(
        ("Operator", lambda row: row.id),
        "kind",
        ("Key", lambda row: "none" if row.public_key is None else "registered"),
        ("Rights", lambda row: ", ".join(map(str, row.rights)) or "none"),
        ("Removed", lambda row: row.removed_at),
    ),
    filters=("ended", "limit"),
    remedy="`durable migrate` makes its caller the first",
    show=orders.show_operator,
    has_ended=lambda row: row.removed_at is not None,
    unknown=RefusalCode.UNKNOWN_OPERATOR,
)

RESOURCES: tuple[Resource[Any], ...] = (
    WORKLOADS, PLACEMENTS, DECISIONS, GENERATIONS, QUEUE, NODES, REGIONS, TENANTS, GRANTS, BUDGETS,
    DRAINS, OVERRIDES, RECOVERIES, POLICIES, OPERATORS,
)  # fmt: skip

_BY_NAME = {name: one for one in RESOURCES for name in (one.name, one.singular, one.short) if name}


def find_resource(name: str) -> Resource[Any]:
    """By its plural, its singular or its short name."""
    if name not in _BY_NAME:
        known = ", ".join(one.name for one in RESOURCES)
        raise RefusedError(
            RefusalCode.INVALID, f"There is no kind of resource {name!r}; allowed: {known}."
        )
    return _BY_NAME[name]
