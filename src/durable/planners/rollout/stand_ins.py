"""Plans around originals: slots that a lost region keeps, for which stand-ins serve elsewhere.

Until the work goes back, such a slot is left as it is, claim and share and owner alike. A stand-in
takes its place among the base slots, so that floors, rollouts and drains see as many as before.
When it is kept no longer, the stand-in is what any slot beyond the base is: scaffolding, which
comes down once enough others serve.
"""

from collections.abc import Mapping
from dataclasses import replace

from durable.model.work.stand_ins import stand_in_for
from durable.planners.rollout.observed import Goal, RolloutObservation, ShareName


def with_stand_ins(goal: Goal) -> Goal:
    """The goal with a stand-in in the place of every slot that is kept."""
    homes = {
        stand_in_for(slot) if slot in goal.kept else slot: region
        for slot, region in goal.homes.items()
    }
    return replace(goal, homes=homes, kept=frozenset())


def without_kept(goal: Goal, observed: RolloutObservation) -> RolloutObservation:
    """What was observed of everything else."""
    return replace(
        observed,
        shares={share: slots - goal.kept for share, slots in observed.shares.items()},
        replicas={
            slot: replica for slot, replica in observed.replicas.items() if slot not in goal.kept
        },
    )


def shares_with_kept(
    goal: Goal, observed: RolloutObservation, planned: Mapping[ShareName, tuple[int, ...]]
) -> dict[ShareName, tuple[int, ...]]:
    """The planned shares; what is kept stays in the share in which it is."""
    return {
        share: tuple(sorted({*slots, *(observed.shares.get(share, frozenset()) & goal.kept)}))
        for share, slots in planned.items()
    }
