"""What a region's signs are taken for, and whether a suspicion has lasted long enough.

Pure: signs and the time come in. A region is taken for lost only while another one is seen to live:
where all seem lost at once, it is the observer that cannot see.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from durable.model.ids import RegionId, ZoneId
from durable.model.recovery.detection import (
    LossKind,
    LossVerdict,
    RecoveryPolicy,
    RegionSigns,
    Suspicion,
    ZoneSigns,
)
from durable.model.recovery.recoveries import Recovery
from durable.validation.text import shorten

# Who has not looked for longer than this was away.
LONGEST_GAP = timedelta(seconds=10)

# Nodes of such a region are seen to live, so the observer sees.
_WITNESSES = frozenset(
    {LossKind.HEALTHY, LossKind.NODE, LossKind.ZONE, LossKind.WATCH, LossKind.WORKER}
)

# Nothing was seen, so nothing is known to be over.
_UNSEEN = frozenset({LossKind.OBSERVER, LossKind.NO_NODES})


def judge(signs: Sequence[RegionSigns], policy: RecoveryPolicy) -> dict[RegionId, LossVerdict]:
    """What every region is taken for, seen together."""
    alone = {one.region: judge_alone(one, policy) for one in signs}
    sees = any(alone[one.region].kind in _WITNESSES and not one.is_fenced for one in signs)
    return {
        region: verdict if not verdict.is_suspected or sees else _blind(verdict)
        for region, verdict in alone.items()
    }


def judge_alone(signs: RegionSigns, policy: RecoveryPolicy) -> LossVerdict:
    """What one region would be taken for if only it were seen."""
    verdict = _judge_alone(signs, policy)
    mark = signs.maintenance
    if mark is None or not verdict.is_suspected:
        return verdict
    sentence = f"In maintenance {mark}. Nothing is taken for its loss until then. "
    changed = {"kind": LossKind.MAINTENANCE, "sentence": shorten(sentence + verdict.sentence)}
    return verdict.model_copy(update=changed)


def _judge_alone(signs: RegionSigns, policy: RecoveryPolicy) -> LossVerdict:
    if not signs.database_answers:
        return _without_database(signs)
    if not signs.nodes:
        return _verdict(
            signs, LossKind.NO_NODES, "No node has had a lease lately, so nothing can be said."
        )
    if _is_lost(signs.nodes - signs.live, signs.nodes, policy.region_lost_percent):
        return _verdict(signs, LossKind.REGION, f"{_leases(signs)} {_worker(signs)}")
    if signs.worker_polls is False or not signs.has_lease:
        return _verdict(
            signs,
            LossKind.WORKER,
            f"{_worker(signs)} Nothing is placed or repaired there. {_without_worker(signs)}",
        )
    lost = _lost_zones(signs.zones, policy)
    if lost:
        shown = ", ".join(lost)
        return _verdict(
            signs, LossKind.ZONE, f"The nodes of {shown} fell silent. {_leases(signs)}", lost
        )
    if signs.watch_age_seconds is not None and signs.watch_age_seconds > policy.watch_seconds:
        return _verdict(
            signs,
            LossKind.WATCH,
            f"Its worker last saw the region {signs.watch_age_seconds:.0f} s ago; it decides on "
            "an old view, and the authority refuses what no longer fits.",
        )
    if signs.live < signs.nodes:
        silent = ", ".join(signs.silent_nodes[:3])
        return _verdict(signs, LossKind.NODE, f"{_leases(signs)} Silent: {silent}.")
    return _verdict(signs, LossKind.HEALTHY, _leases(signs))


def next_suspicion(
    before: Suspicion | None, verdict: LossVerdict, now: datetime, policy: RecoveryPolicy
) -> Suspicion | None:
    """The suspicion from here on; one that looks over is kept until it has been so for long."""
    signs = verdict.signs
    if signs.is_fenced or (before is not None and before.epoch != signs.epoch):
        before = None  # a recovery has dealt with that loss
    if before is not None and before.since > now:
        # The clock went back: how long it has lasted is counted again.
        before = before.model_copy(update={"since": now, "lost_at": min(before.lost_at, now)})
    if signs.is_fenced:
        return None
    if verdict.is_suspected:
        if before is not None:
            return before.model_copy(update={"verdict": verdict, "calm_since": None})
        lost_at = now - timedelta(seconds=_last_heard_seconds(signs))
        return Suspicion(
            region=verdict.region, epoch=signs.epoch, since=now, lost_at=lost_at, verdict=verdict
        )
    if before is None:
        return None
    if verdict.kind in _UNSEEN:
        return before
    calm_since = min(before.calm_since or now, now)
    if now - calm_since >= timedelta(seconds=policy.calm_seconds):
        return None
    return before.model_copy(update={"calm_since": calm_since})


def is_due(
    suspicion: Suspicion, now: datetime, watching_since: datetime, policy: RecoveryPolicy
) -> bool:
    """Whether it has lasted long enough, also before the eyes of who looks now.

    Who was away, or could not see, finds every lease lapsed: it must watch for a while itself.
    """
    if suspicion.calm_since is not None:
        return False
    grace = timedelta(seconds=grace_seconds(suspicion.verdict, policy))
    return now - suspicion.since >= grace and now - watching_since >= grace


def is_of(recovery: Recovery, suspicion: Suspicion) -> bool:
    """Whether a recovery is of this loss; one that ended before, by a veto, was of another."""
    is_earlier = recovery.has_ended and recovery.changed_at < suspicion.since
    return recovery.key == suspicion.recovery and not is_earlier


def keep_watching(since: datetime | None, last: datetime | None, now: datetime) -> datetime:
    """Since when it has been watched without a gap, or a clock that went back."""
    if since is None or last is None or not timedelta() <= now - last <= LONGEST_GAP:
        return now
    return since


def must_renew(verdict: LossVerdict, lease_seconds: float) -> bool:
    """Whether the region's lease would lapse only because no worker is there to renew it.

    A worker that still asks for work is itself cut off from the global side: its lease is the
    bound of what it does alone. A region that never had a lease does not live on one.
    """
    signs = verdict.signs
    return (
        verdict.kind is LossKind.WORKER
        and signs.worker_polls is not True
        and signs.lease_lapsed_seconds is not None
        and signs.lease_lapsed_seconds > -lease_seconds / 2
    )


def grace_seconds(verdict: LossVerdict, policy: RecoveryPolicy) -> float:
    """How long these signs must last."""
    if verdict.kind is LossKind.DATABASE:
        return policy.database_grace_seconds
    signs = verdict.signs
    is_gone = signs.worker_polls is False and not signs.has_lease
    graces = [policy.grace_seconds]
    if signs.silent_hosts <= 1 and not is_gone:
        graces.append(policy.lone_host_grace_seconds)
    if _are_only_agents_silent(signs):
        graces.append(policy.agents_grace_seconds)
    return max(graces)


def _are_only_agents_silent(signs: RegionSigns) -> bool:
    is_well = signs.database_answers and signs.worker_polls is True and signs.has_lease
    return is_well and 0 < signs.hosts == signs.silent_hosts


def _last_heard_seconds(signs: RegionSigns) -> float:
    """How long ago what is lost gave its last sign of life: a node, or else the whole region.

    Not when its lease lapsed: that is by the whole lease later.
    """
    if signs.silent_seconds is not None:
        return signs.silent_seconds
    return max(0.0, signs.last_sign_seconds or 0.0)


# ── one region ──────────────────────────────────────────────────────────────────────────────────


def _without_database(signs: RegionSigns) -> LossVerdict:
    if signs.has_lease:
        return _verdict(
            signs,
            LossKind.OBSERVER,
            "Its database does not answer here, but its worker renews the region's lease: the "
            "way there is cut, not the region.",
        )
    if signs.worker_polls is False:
        return _verdict(signs, LossKind.REGION, f"Its database does not answer. {_worker(signs)}")
    return _verdict(signs, LossKind.DATABASE, f"Its database does not answer. {_worker(signs)}")


def _blind(verdict: LossVerdict) -> LossVerdict:
    return verdict.model_copy(
        update={
            "kind": LossKind.OBSERVER,
            "sentence": "No other region is seen to live, so none is taken for lost: "
            f"{verdict.sentence} If it is lost, declare it with `durable recovery declare`.",
        }
    )


def _lost_zones(zones: Sequence[ZoneSigns], policy: RecoveryPolicy) -> tuple[ZoneId, ...]:
    """Zones that fell silent; a single node is a node."""
    return tuple(
        zone.zone
        for zone in zones
        if zone.nodes > 1 and _is_lost(zone.lapsed, zone.nodes, policy.zone_lost_percent)
    )


def _is_lost(lapsed: int, nodes: int, percent: float) -> bool:
    return lapsed > 0 and lapsed * 100 >= nodes * percent


def _verdict(
    signs: RegionSigns, kind: LossKind, sentence: str, zones: tuple[ZoneId, ...] = ()
) -> LossVerdict:
    return LossVerdict(region=signs.region, kind=kind, sentence=sentence, zones=zones, signs=signs)


def _leases(signs: RegionSigns) -> str:
    agents = f"{signs.hosts - signs.silent_hosts} of {signs.hosts} agents"
    return f"{signs.live} of {signs.nodes} nodes have a live lease, renewed by {agents}."


def _without_worker(signs: RegionSigns) -> str:
    if signs.has_lease or signs.lease_lapsed_seconds is None:
        return "What runs there goes on."
    return (
        "Where it has a database of its own, its agents have stopped what says `on_disconnect: "
        "stop`, until the lease is renewed."
    )


def _worker(signs: RegionSigns) -> str:
    polls = {
        True: "Its worker asks Temporal for work",
        False: "No worker asks Temporal for its work",
        None: "Whether a worker asks Temporal for its work is not known",
    }[signs.worker_polls]
    if signs.lease_lapsed_seconds is None:
        return f"{polls}; the region never had a lease."
    if signs.has_lease:
        return f"{polls}; the region's lease is renewed."
    return f"{polls}; the region's lease lapsed {signs.lease_lapsed_seconds:.0f} s ago."
