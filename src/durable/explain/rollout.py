"""A rollout that is under way, as far as the authority knows: how far, and what it waits for."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from durable.authority.db.connection import Databases
from durable.authority.db.everywhere import ask_regions
from durable.authority.fleet.regions import list_regions
from durable.authority.reads.shares import ShareStatus, read_shares
from durable.model.ids import Generation, RegionId
from durable.model.work.phases import Counts
from durable.model.work.rollout import RolloutState
from durable.model.work.workload import AdmittedWorkload
from durable.planners.rollout.verdict import pause_point
from durable.validation.text import show_moment
from durable.validation.value import Value


class RolloutExplanation(Value):
    """What is replaced by what, how far that has come, and what it waits for."""

    state: RolloutState
    # The last good generation, which it came from or goes back to.
    stable_generation: Generation | None
    by_generation: Mapping[Generation, Counts]
    # Regions in which the wanted generation has no share yet: their turn has not come.
    regions_to_come: tuple[RegionId, ...]
    waits_for: str


async def explain_rollout(databases: Databases, row: AdmittedWorkload) -> RolloutExplanation | None:
    """None if nothing of the workload has to be replaced."""
    if row.rollout is None or row.deleted or row.deleting:
        return None
    found = await ask_regions(
        await list_regions(databases),
        lambda region: read_shares(databases, region, row.tenant, row.workload),
    )
    shares = [share for some in found.by_region.values() for share in some]
    begun = {share.region for share in shares if share.generation == row.generation}
    now = max((share.read_at for share in shares), default=row.rollout.progressed_at)
    return RolloutExplanation(
        state=row.rollout,
        stable_generation=row.stable_generation,
        by_generation=_by_generation(shares),
        regions_to_come=tuple(sorted(set(row.share) - begun - set(found.unreachable))),
        waits_for=_waits_for(row, row.rollout, now),
    )


def _by_generation(shares: Sequence[ShareStatus]) -> dict[Generation, Counts]:
    counted = {
        generation: Counts.of(
            Counter(
                slot.state
                for share in shares
                for slot in share.slots
                if share.generation == generation and slot.state
            )
        )
        for generation in sorted({share.generation for share in shares})
    }
    return {generation: counts for generation, counts in counted.items() if counts.bound}


def _waits_for(row: AdmittedWorkload, state: RolloutState, now: datetime) -> str:
    """The same order in which the rollout itself looks: people first, then bakes, then replicas."""
    name, settings = f"{row.tenant}/{row.workload}", row.spec.rollout
    if state.rollback is not None and not state.goes_back(row.generation, row.stable_generation):
        return (
            "a person to apply another version: no generation was ever good, and this one failed, "
            f"because {state.rollback}"
        )
    if state.rollback is not None:
        return f"replicas of generation {row.generation} to serve, because {state.rollback}"
    if state.pause is not None:
        return (
            f"a person to resume it: it was paused by {state.pause}; `durable rollout resume "
            f"{name}`"
        )
    point = pause_point(state, settings, row.spec.replicas)
    if point is not None and state.replaced >= point:
        return f"a person to promote it past its pause point: `durable rollout promote {name}`"
    bake = settings.bake or timedelta(0)
    baking = [region for region, since in state.served_since.items() if now - since < bake]
    if baking:
        until = max(state.served_since[region] for region in baking) + bake
        return f"{', '.join(baking)} to have served until {show_moment(until)}"
    late = state.progressed_at + settings.progress_deadline
    return (
        f"more replicas to be available; it is rolled back if there are none by {show_moment(late)}"
    )
