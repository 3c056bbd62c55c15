"""Soft preferences, one score each: an array with a number from 0 (worst) to 1 (best) per node.

Only whole-array arithmetic without sums, whose rounding could differ from machine to machine.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from durable.model.fleet.labels import LabelKey, TaintEffect
from durable.scheduling.filters.taints import not_tolerated
from durable.scheduling.snapshot.columns import Rows
from durable.scheduling.snapshot.region import LabelSet
from durable.scheduling.working_set import WorkingSet
from durable.validation.quantities import MAX_QUANTITY

Points = NDArray[np.float64]

COST_LABEL = "cost"
_IMAGE_PREFIX = "image/"
# Over zones first: of the score for spread the zone gives this part, the node the rest.
_ZONE_PART = 2 / 3


@dataclass(frozen=True, slots=True)
class Score:
    """One preference; the zone's part is kept apart, because a whole zone changes at once.

    A score with `changes` is another for a node once a replica is placed there; the others
    stay as they are for the whole decision.
    """

    name: str
    of_node: Callable[[WorkingSet, Rows], Points]
    of_zone: Callable[[WorkingSet], Points] | None = None
    changes: bool = False

    def __call__(self, working: WorkingSet, rows: Rows) -> Points:
        points = self.of_node(working, rows)
        if self.of_zone is None:
            return points
        return points + self.of_zone(working)[working.columns.zone[rows]]


def _even_over_zones(working: WorkingSet) -> Points:
    """Most where this workload has fewest replicas, among the zones that count."""
    counts = working.in_zone
    among = counts[working.zone_counts].tolist()
    least, most = min(among, default=0), max(among, default=0)
    if least == most:
        return np.full(len(counts), _ZONE_PART)
    within = np.minimum(np.maximum(counts, least), most)
    return (most - within) / (most - least) * _ZONE_PART


def _even_over_nodes(working: WorkingSet, rows: Rows) -> Points:
    return (1 - _ZONE_PART) / (1 + working.on_node[rows])


def _packing(working: WorkingSet, rows: Rows) -> Points:
    """Most where cpu, memory and gpus would be nearly used up.

    It rises steeply where a node is nearly empty and hardly where it is nearly full: what matters
    is not to begin another node, and of those that are begun, many are about as good.
    """
    filled = working.filled[rows]
    return filled * (2 - filled)


def _balance(working: WorkingSet, rows: Rows) -> Points:
    """Most where all of them would be used in like measure, so that none is stranded."""
    return 1 - working.uneven[rows]


def _locality(working: WorkingSet, rows: Rows) -> Points:
    """The part of the preferred labels that the node has."""
    preferred = frozenset(working.request.spec.prefers.items())
    if not preferred:
        return np.ones(len(rows))
    parts = working.snapshot.label_sets.derived(
        ("part of", preferred), lambda has: len(preferred & has) / len(preferred), np.float64
    )
    return parts[working.columns.label_set[rows]]


def _cost_of(labels: LabelSet) -> float:
    text = dict(labels).get(COST_LABEL, "")
    return float(min(int(text), MAX_QUANTITY)) if text.isdecimal() else np.inf


def _cost(working: WorkingSet, rows: Rows) -> Points:
    """Most for the cheapest; a node without a cost label counts as the dearest that has one."""
    costs = working.snapshot.label_sets.derived(COST_LABEL, _cost_of, np.float64)
    cost = costs[working.columns.label_set[rows]]
    stated = cost[np.isfinite(cost)]
    if not len(stated) or stated.max() == stated.min():
        return np.ones(len(rows))
    return (stated.max() - np.minimum(cost, stated.max())) / (stated.max() - stated.min())


def image_label(image: str) -> str:
    """The key of the label that tells that a node has an image.

    `image/` and the image's name in small letters, with `-` for what no key may hold, cut from the
    front to a key's length: the end, with the tag, is what distinguishes images.
    """
    name = re.sub("[^a-z0-9._/-]", "-", image.lower())
    name = name[len(_IMAGE_PREFIX) - LabelKey.max_length :].strip("._/-")
    return _IMAGE_PREFIX + name


def _warm_image(working: WorkingSet, rows: Rows) -> Points:
    """1 where the node has the image's label, whatever its value."""
    image = working.request.spec.run.image
    if image is None:
        return np.ones(len(rows))
    label = image_label(image)
    warm = working.snapshot.label_sets.derived(
        ("key", label), lambda has: any(key == label for key, _ in has), np.float64
    )
    return warm[working.columns.label_set[rows]]


def _tolerated(working: WorkingSet, rows: Rows) -> Points:
    """Less with every prefer-no-schedule taint that is not tolerated."""
    tolerations, effect = working.request.spec.tolerations, TaintEffect.PREFER_NO_SCHEDULE
    points = working.snapshot.taint_sets.derived(
        (effect, tolerations),
        lambda taints: 1 / (1 + len(not_tolerated(taints, tolerations, effect))),
        np.float64,
    )
    return points[working.columns.taint_set[rows]]


SCORES = (
    Score("spread", _even_over_nodes, of_zone=_even_over_zones, changes=True),
    Score("packing", _packing, changes=True),
    Score("balance", _balance, changes=True),
    Score("locality", _locality),
    Score("cost", _cost),
    Score("warm_image", _warm_image),
    Score("tolerated", _tolerated),
)
