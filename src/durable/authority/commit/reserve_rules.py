"""What a reservation needs: each reason to refuse one in a function of its own, with its sentence.

Checked again at commit, on the locked rows: a stale cache costs a retry, never an invariant.
"""

from datetime import timedelta

from durable.authority.commit.ledger import (
    ClaimEntry,
    DrawEntry,
    Ledger,
    NodeEntry,
    NodeHealth,
)
from durable.authority.commit.override_rules import (
    Overrides,
    hold_refuses,
    open_draw,
    overrides_for,
    place_avoided,
    skips_cordon,
)
from durable.model.ids import DeviceId
from durable.model.placement.intents import Granted, Refused, Reserve
from durable.model.refusal import Refusal, RefusalCode
from durable.model.resources import at_least_nothing, at_most, minus, plus, show_amounts
from durable.model.states import PolicyState, RegionState

# A revision that was rolled back may not place anything new; what is bound continues.
RESERVES_UNDER = frozenset({PolicyState.CANARY, PolicyState.ACTIVE})


def refused(code: RefusalCode, sentence: str) -> Refused:
    return Refused(refusal=Refusal(code=code, sentence=sentence))


def reserve(ledger: Ledger, intent: Reserve) -> Granted | Refused:
    """Reserves what was requested on the node, unless something speaks against it by now."""
    node = ledger.nodes.get(intent.node)
    if node is None:
        return refused(
            RefusalCode.UNKNOWN_NODE,
            f"{ledger.region} has no node {intent.node}; refresh the cache and decide again.",
        )
    overrides = overrides_for(ledger, intent.tenant, intent.workload)
    draw = _draw_for(ledger, intent)
    refusal = (
        region_refuses(ledger)
        or _policy_refuses(ledger, intent)
        or hold_refuses(overrides, intent.tenant, intent.workload)
        or _slot_refuses(ledger, intent)
        or _place_refuses(ledger, intent, node)
        or place_avoided(overrides, node.zone, node.node)
        or health_refuses(ledger, node.health, overrides)
        or _capacity_refuses(intent, node)
        or (_grant_refuses(ledger, intent) if draw is None else None)
        or _headroom_refuses(ledger, intent)
    )
    return refusal or _grant_reservation(ledger, intent, node, draw)


def region_refuses(ledger: Ledger) -> Refused | None:
    """Whether the region takes no new work: asked again at every step until it is started."""
    if ledger.state is not RegionState.OPEN:
        return refused(
            RefusalCode.REGION_FENCED,
            f"{ledger.region} is {ledger.state} and takes no new work; "
            "place it elsewhere or wait for the failback.",
        )
    lease = ledger.lease
    if lease is None or lease.seconds_left(ledger.now):
        return None
    if lease.has_jumped(ledger.now):
        return refused(
            RefusalCode.CLOCK_JUMPED,
            f"The clock of {ledger.region}'s database went back, so nobody can tell whether the "
            "region's lease still lasts. Wait until its worker has renewed it; "
            "see runbooks/clock-jump.md.",
        )
    return refused(
        RefusalCode.REGION_LEASE_LAPSED,
        f"The lease of {ledger.region} lapsed at {lease.expires_at.isoformat()}: it cannot reach "
        "the global side, which may give its slots to others. Wait until it is renewed.",
    )


def _policy_refuses(ledger: Ledger, intent: Reserve) -> Refused | None:
    state = ledger.policies.get(intent.policy_revision)
    if state is None:
        return refused(
            RefusalCode.UNKNOWN_POLICY,
            f"Policy revision {intent.policy_revision} was never published in {ledger.region}; "
            "decide again under one that was.",
        )
    if state in RESERVES_UNDER:
        return None
    return refused(
        RefusalCode.POLICY_WITHDRAWN,
        f"Policy revision {intent.policy_revision} is {state} in {ledger.region}; "
        "decide again under the active revision.",
    )


def _slot_refuses(ledger: Ledger, intent: Reserve) -> Refused | None:
    key = (str(intent.tenant), str(intent.workload), intent.slot)
    if key not in ledger.owned_slots:
        return refused(
            RefusalCode.SLOT_NOT_OWNED,
            f"{ledger.region} does not own slot {intent.slot} of {intent.tenant}/"
            f"{intent.workload}; assign or transfer the slot first.",
        )
    holder = ledger.slot_claims.get(key)
    if holder is None:
        return None
    return refused(
        RefusalCode.SLOT_TAKEN,
        f"Slot {intent.slot} of {intent.tenant}/{intent.workload} is claimed by token {holder}; "
        "release that first.",
    )


def _place_refuses(ledger: Ledger, intent: Reserve, node: NodeEntry) -> Refused | None:
    wants = intent.requirements
    if (wants.regions and ledger.region not in wants.regions) or (
        wants.zones and node.zone not in wants.zones
    ):
        return refused(
            RefusalCode.RESIDENCY,
            f"Residency keeps {intent.tenant}/{intent.workload} out of {node.zone} in "
            f"{ledger.region}; choose a node where it is allowed.",
        )
    if node.dedicated_to not in (None, intent.tenant) or (
        wants.dedicated and node.dedicated_to != intent.tenant
    ):
        owner = f"is dedicated to {node.dedicated_to}" if node.dedicated_to else "is shared"
        return refused(
            RefusalCode.TENANCY,
            f"Node {node.node} {owner}, so {intent.tenant}/{intent.workload} may not run there; "
            "choose another node.",
        )
    lacking = [key for key, value in wants.labels.items() if node.labels.get(key) != value]
    if lacking:
        return refused(
            RefusalCode.REQUIRED_LABELS,
            f"Node {node.node} lacks the required label {lacking[0]}={wants.labels[lacking[0]]}; "
            "choose another node.",
        )
    return None


def health_refuses(ledger: Ledger, node: NodeHealth, overrides: Overrides = ()) -> Refused | None:
    """Whether the node takes no new work: asked again at every step until the work is started."""
    if node.cordon_reason is not None and not skips_cordon(overrides):
        return refused(
            RefusalCode.NODE_CORDONED,
            f"Node {node.node} is cordoned: {node.cordon_reason[:200]}; choose another node.",
        )
    if node.state != "ready":
        return refused(
            RefusalCode.NODE_NOT_READY,
            f"Node {node.node} is {node.state}; choose another node or wait for its agent.",
        )
    if node.lease_expires_at is None or node.lease_expires_at <= ledger.now:
        return refused(
            RefusalCode.NODE_STALE,
            f"Node {node.node} has not renewed its lease; choose another node.",
        )
    if node.lease_epoch != ledger.epoch:
        return refused(
            RefusalCode.NODE_STALE,
            f"Node {node.node} has not registered since {ledger.region} was fenced; "
            "choose another node or wait for its agent.",
        )
    return None


def _capacity_refuses(intent: Reserve, node: NodeEntry) -> Refused | None:
    wants = intent.resources.amounts
    if not at_most(plus(node.used, wants), node.capacity):
        return refused(
            RefusalCode.NODE_FULL,
            f"Node {node.node} has {show_amounts(minus(node.capacity, node.used))} free and "
            f"{intent.resources} was requested; choose another node.",
        )
    if len(node.free_devices) < intent.resources.gpus:
        return refused(
            RefusalCode.DEVICES_TAKEN,
            f"Node {node.node} has {len(node.free_devices)} healthy free gpus and "
            f"{intent.resources.gpus} were requested; choose another node.",
        )
    return None


def _grant_refuses(ledger: Ledger, intent: Reserve) -> Refused | None:
    grant = ledger.grants.get(intent.tenant)
    if grant is None:
        return refused(
            RefusalCode.UNKNOWN_TENANT,
            f"Tenant {intent.tenant} has no grant in {ledger.region}; "
            "set a quota for it, or wait for the quota controller to grant some.",
        )
    # What is not requested may be overdrawn.
    left, over = at_least_nothing(grant.free), grant.overdrawn
    if at_most(intent.resources.amounts, left):
        return None
    runs_over = (
        f"; {show_amounts(over)} runs on an emergency quota that is over" if any(over) else ""
    )
    return refused(
        RefusalCode.GRANT_EXHAUSTED,
        f"Tenant {intent.tenant} has {show_amounts(left)} of its grant "
        f"left in {ledger.region} and {intent.resources} was requested{runs_over}; "
        "request a transfer or wait.",
    )


def _draw_for(ledger: Ledger, intent: Reserve) -> DrawEntry | None:
    """The emergency draw that it counts against; none while the grant has room for it."""
    if not ledger.draws or _grant_refuses(ledger, intent) is None:
        return None
    return open_draw(ledger, intent.tenant, intent.resources.amounts)


def _headroom_refuses(ledger: Ledger, intent: Reserve) -> Refused | None:
    wants = intent.resources.amounts
    if intent.draw is None:
        room = ledger.ordinary_room()
        if at_most(wants, room):
            return None
        return refused(
            RefusalCode.HEADROOM_RESERVED,
            f"{ledger.region} has {show_amounts(room)} left beside what is kept for recovery and "
            f"{intent.resources} was requested; place it elsewhere or wait.",
        )
    budget = ledger.budgets.get(intent.draw.budget)
    if budget is None:
        return refused(
            RefusalCode.UNKNOWN_BUDGET,
            f"{ledger.region} has no recovery budget {intent.draw.budget}; "
            "name one of the region's budgets.",
        )
    if budget.incident != intent.draw.incident or budget.expires_at <= ledger.now:
        return refused(
            RefusalCode.BUDGET_CLOSED,
            f"Recovery budget {intent.draw.budget} of {ledger.region} is not open for incident "
            f"{intent.draw.incident}; open or extend it first.",
        )
    slot = (str(intent.tenant), str(intent.workload), intent.slot)
    if ledger.moved_slots.get(slot) != intent.draw.incident:
        return refused(
            RefusalCode.SLOT_NOT_MOVED,
            f"Incident {intent.draw.incident} did not move slot {intent.slot} of {intent.tenant}/"
            f"{intent.workload} to {ledger.region}, so it draws on no recovery budget; reserve it "
            "as ordinary work.",
        )
    if not at_most(plus(budget.used, wants), budget.amount):
        return refused(
            RefusalCode.BUDGET_EXHAUSTED,
            f"Recovery budget {intent.draw.budget} of {ledger.region} has "
            f"{show_amounts(minus(budget.amount, budget.used))} left and {intent.resources} was "
            "requested; raise it or place the work elsewhere.",
        )
    return None


def _grant_reservation(
    ledger: Ledger, intent: Reserve, node: NodeEntry, draw: DrawEntry | None
) -> Granted:
    ledger.tokens_issued += 1
    gpus = intent.resources.gpus
    devices, node.free_devices = node.free_devices[:gpus], node.free_devices[gpus:]
    expires_at = ledger.now + timedelta(seconds=intent.lease_ttl_seconds)
    entry = ClaimEntry(
        token=ledger.tokens_issued,
        tenant=str(intent.tenant),
        workload=str(intent.workload),
        generation=intent.generation,
        slot=intent.slot,
        attempt=intent.attempt,
        node=node.node,
        zone=node.zone,
        amounts=intent.resources.amounts,
        budget=str(intent.draw.budget) if intent.draw else None,
        emergency=draw and draw.override,
        policy_revision=intent.policy_revision,
        state="held",
        expires_at=expires_at,
        binding_state=None,
        stop_requested=False,
        observed=None,
        health=node.health,
    )
    ledger.claim(entry)
    cpu_millis, memory_mib, gpus = entry.amounts
    ledger.write(
        "reserve",
        {
            "token": entry.token, "tenant": entry.tenant, "workload": entry.workload,
            "generation": entry.generation, "slot": entry.slot, "attempt": entry.attempt,
            "node": entry.node, "cpu_millis": cpu_millis, "memory_mib": memory_mib, "gpus": gpus,
            "devices": devices, "budget": entry.budget, "emergency": entry.emergency,
            "priority": intent.priority,
            "requirements": intent.requirements.model_dump(mode="json"),
            "policy_revision": entry.policy_revision, "expires_at": expires_at.isoformat(),
            "actor": str(intent.actor), "evidence": intent.evidence,
        },
    )  # fmt: skip
    return Granted(
        token=entry.token,
        node=intent.node,
        version=ledger.next_version,
        devices=tuple(DeviceId(device) for device in devices),
        expires_at=expires_at,
    )
