"""What each step of an intent needs: one function per step, each refusal with its sentence.

Pure: the ledger is the locked state, and a grant changes the ledger so that the next intent of the
batch sees it.
"""

from typing import assert_never

from durable.authority.commit.ledger import Availability, ClaimEntry, Ledger
from durable.authority.commit.override_rules import hold_refuses, overrides_for, place_avoided
from durable.authority.commit.reserve_rules import health_refuses, refused, region_refuses, reserve
from durable.model.ids import NodeId
from durable.model.placement.intents import (
    AnyIntent,
    Bind,
    Evict,
    Expire,
    Granted,
    Refused,
    Release,
    ReleaseCause,
    Reserve,
    Start,
)
from durable.model.refusal import RefusalCode
from durable.model.states import PolicyState, RegionState

# What a superseded revision reserved may still be bound; not so for one that was rolled back.
BINDS_UNDER = frozenset({PolicyState.CANARY, PolicyState.ACTIVE, PolicyState.SUPERSEDED})


def decide(ledger: Ledger, intent: AnyIntent) -> Granted | Refused:
    """Grants or refuses one intent on the ledger as the intents before it left it."""
    if intent.epoch != ledger.epoch:
        return refused(
            RefusalCode.FENCED_WRITER,
            f"This writer acts for epoch {intent.epoch} of {ledger.region}, which is at epoch "
            f"{ledger.epoch}; read the region again before sending anything.",
        )
    if isinstance(intent, Reserve):
        return reserve(ledger, intent)
    claim = ledger.claims.get(intent.token)
    if claim is None or not _belongs(claim, intent):
        return refused(
            RefusalCode.UNKNOWN_TOKEN,
            f"{ledger.region} has issued no token {intent.token} to {intent.tenant}/"
            f"{intent.workload} generation {intent.generation} slot {intent.slot} attempt "
            f"{intent.attempt}; read the reservation again.",
        )
    match intent:
        case Bind():
            return _bind(ledger, claim, intent)
        case Start():
            return _start(ledger, claim, intent)
        case Evict():
            return _evict(ledger, claim, intent)
        case Release():
            return _release(ledger, claim, intent)
        case Expire():
            return _expire(ledger, claim, intent)
    assert_never(intent)


def _belongs(claim: ClaimEntry, intent: AnyIntent) -> bool:
    return (claim.tenant, claim.workload, claim.generation, claim.slot, claim.attempt) == (
        intent.tenant,
        intent.workload,
        intent.generation,
        intent.slot,
        intent.attempt,
    )


def _bind(ledger: Ledger, claim: ClaimEntry, intent: Bind) -> Granted | Refused:
    if claim.state != "held":
        return _wrong_state(ledger, claim, "a held reservation can be bound")
    if claim.expires_at <= ledger.now:
        return refused(
            RefusalCode.LEASE_EXPIRED,
            f"Reservation {claim.token} expired at {claim.expires_at.isoformat()}; "
            "decide and reserve again.",
        )
    policy = ledger.policies.get(claim.policy_revision)
    if policy not in BINDS_UNDER:
        return refused(
            RefusalCode.POLICY_WITHDRAWN,
            f"Policy revision {claim.policy_revision} is {policy} in {ledger.region}; "
            "release the reservation and decide again under the active revision.",
        )
    overrides = overrides_for(ledger, claim.tenant, claim.workload)
    refusal = (
        region_refuses(ledger)
        or hold_refuses(overrides, claim.tenant, claim.workload)
        or place_avoided(overrides, claim.zone, claim.node)
        or health_refuses(ledger, claim.health, overrides)
        or _draw_refuses(ledger, claim)
    )
    if refusal is not None:
        return refusal
    claim.state, claim.binding_state = "bound", "bound"
    return _take_step(ledger, "bind", claim, intent)


def _start(ledger: Ledger, claim: ClaimEntry, intent: Start) -> Granted | Refused:
    if claim.binding_state != "bound":
        return _wrong_state(ledger, claim, "a binding that was not started can be started")
    if claim.stop_requested:
        return refused(
            RefusalCode.STOP_REQUESTED,
            f"Binding {claim.token} was requested to stop; release it and place the slot again.",
        )
    overrides = overrides_for(ledger, claim.tenant, claim.workload)
    refusal = (
        region_refuses(ledger)
        or place_avoided(overrides, claim.zone, claim.node)
        or health_refuses(ledger, claim.health, overrides)
        or _draw_refuses(ledger, claim)
    )
    if refusal is not None:
        return refusal
    claim.binding_state = "starting"
    return _take_step(ledger, "start", claim, intent)


def _draw_refuses(ledger: Ledger, claim: ClaimEntry) -> Refused | None:
    """Nothing new starts on an emergency quota that is over; what runs on it goes on."""
    if claim.emergency is None or ledger.draws[claim.emergency].is_open(ledger.now):
        return None
    return refused(
        RefusalCode.DRAW_ENDED,
        f"The emergency quota {claim.emergency}, on which {claim.token} was reserved, is over; "
        "release the reservation and decide again.",
    )


def _evict(ledger: Ledger, claim: ClaimEntry, intent: Evict) -> Granted | Refused:
    if claim.binding_state not in ("bound", "starting"):
        return _wrong_state(ledger, claim, "an active binding can be evicted")
    if claim.stop_requested:
        # The stop was requested before, and its first reason is the one that is kept.
        return _granted(ledger.version, claim)
    there = ledger.availability.get((claim.tenant, claim.workload))
    if there is not None and claim.token in there.serving_tokens:
        if there.serving - 1 < there.must_serve and not intent.is_forced:
            return _too_few(ledger, claim, there)
        there.serving -= 1
    claim.stop_requested = True
    return _take_step(ledger, "evict", claim, intent)


def _too_few(ledger: Ledger, claim: ClaimEntry, there: Availability) -> Refused:
    return refused(
        RefusalCode.DISRUPTION_ALLOWANCE,
        f"{there.serving} replicas of {claim.tenant}/{claim.workload} serve in {ledger.region} and "
        f"{there.must_serve} have to, so slot {claim.slot} is not stopped now; wait until more "
        "serve, have it replaced instead, or force it with a reason.",
    )


def _release(ledger: Ledger, claim: ClaimEntry, intent: Release) -> Granted | Refused:
    if claim.is_freed:
        return _wrong_state(ledger, claim, "a live claim can be released")
    was_started = claim.binding_state == "starting"
    if was_started and not _safe_to_release(ledger, claim, intent.cause):
        return refused(
            RefusalCode.STILL_RUNNING,
            f"Binding {claim.token} was started on {claim.node} and nothing shows "
            f"{intent.cause}; evict it and release it when its agent reports the stop.",
        )
    ledger.free(claim)
    if claim.state == "held":
        claim.state = "released"
        return _take_step(ledger, "release_held", claim, intent)
    claim.binding_state = "released"
    return _take_step(ledger, "release_bound", claim, intent)


def _safe_to_release(ledger: Ledger, claim: ClaimEntry, cause: ReleaseCause) -> bool:
    """Whether the named cause shows that the process is gone, or no longer counts for anything."""
    match cause:
        case ReleaseCause.WITHDRAWN:
            return False
        case ReleaseCause.STOPPED:
            return claim.observed in ("stopped", "failed")
        case ReleaseCause.NODE_LOST:
            return _has_lapsed(ledger, claim)
        case ReleaseCause.REGION_FENCED:
            # A node that registered at the new epoch answers for what it runs: evict it there. One
            # of the old epoch has stopped what must not run without a lease once it has lapsed.
            return (
                ledger.state is RegionState.FENCED
                and claim.health.lease_epoch != ledger.epoch
                and _has_lapsed(ledger, claim)
            )
    assert_never(cause)


def _has_lapsed(ledger: Ledger, claim: ClaimEntry) -> bool:
    expires_at = claim.health.lease_expires_at
    return expires_at is None or expires_at <= ledger.now


def _expire(ledger: Ledger, claim: ClaimEntry, intent: Expire) -> Granted | Refused:
    if claim.state != "held":
        return _wrong_state(ledger, claim, "a held reservation can expire")
    if claim.expires_at > ledger.now:
        return refused(
            RefusalCode.LEASE_ACTIVE,
            f"Reservation {claim.token} is leased until {claim.expires_at.isoformat()}; "
            "expire it after that.",
        )
    ledger.free(claim)
    claim.state = "expired"
    return _take_step(ledger, "expire", claim, intent)


def _take_step(ledger: Ledger, statement: str, claim: ClaimEntry, intent: AnyIntent) -> Granted:
    row = {"token": claim.token, "actor": str(intent.actor), "evidence": intent.evidence}
    ledger.write(statement, row)
    return _granted(ledger.next_version, claim)


def _granted(version: int, claim: ClaimEntry) -> Granted:
    return Granted(token=claim.token, node=NodeId(claim.node), version=version)


def _wrong_state(ledger: Ledger, claim: ClaimEntry, rule: str) -> Refused:
    state = claim.binding_state or claim.state
    return refused(
        RefusalCode.WRONG_STATE,
        f"Token {claim.token} of {ledger.region} is {state}; only {rule}.",
    )
