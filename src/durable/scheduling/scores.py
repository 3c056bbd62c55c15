"""How much each node is liked, by one preference at a time: an array from 0 (least) to 1 (most).

Only whole-array arithmetic without sums, whose rounding could differ from machine to machine.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from durable.model.labels import LabelKey, TaintEffect
from durable.scheduling.filters.marks import not_tolerated
from durable.scheduling.question import Question
from durable.scheduling.snapshot.region import LabelSet
from durable.scheduling.snapshot.rows import Rows
from durable.validation.quantities import MAX_QUANTITY

Points = NDArray[np.float64]

COST_LABEL = "cost"
_IMAGE_PREFIX = "image/"
# Over zones first: of the score for spread the zone gives this part, the node the rest.
_ZONE_PART = 2 / 3


@dataclass(frozen=True, slots=True)
class Score:
    """One preference; what it says of a zone is told apart, because a whole zone changes at once.

    A score that `moves` changes for a node when a replica is placed there; others stay as they are
    for the whole decision.
    """

    name: str
    of_node: Callable[[Question, Rows], Points]
    of_zone: Callable[[Question], Points] | None = None
    moves: bool = False

    def __call__(self, question: Question, rows: Rows) -> Points:
        points = self.of_node(question, rows)
        if self.of_zone is None:
            return points
        return points + self.of_zone(question)[question.columns.zone[rows]]


def _even_over_zones(question: Question) -> Points:
    """Most where this workload has fewest replicas, among the zones that count."""
    counts = question.in_zone
    among = counts[question.zone_counts].tolist()
    least, most = min(among, default=0), max(among, default=0)
    if least == most:
        return np.full(len(counts), _ZONE_PART)
    within = np.minimum(np.maximum(counts, least), most)
    return (most - within) / (most - least) * _ZONE_PART


def _even_over_nodes(question: Question, rows: Rows) -> Points:
    return (1 - _ZONE_PART) / (1 + question.on_node[rows])


def _packing(question: Question, rows: Rows) -> Points:
    """Most where cpu and memory would be nearly used up."""
    cpu, memory = question.would_use
    return (cpu[rows] + memory[rows]) / 2


def _balance(question: Question, rows: Rows) -> Points:
    """Most where cpu and memory would be used in like measure, so that neither is stranded."""
    cpu, memory = question.would_use
    return 1 - np.abs(cpu[rows] - memory[rows])


def _locality(question: Question, rows: Rows) -> Points:
    """The part of the preferred labels that the node has."""
    preferred = frozenset(question.wish.spec.prefers.items())
    if not preferred:
        return np.ones(len(rows))
    parts = question.snapshot.label_sets.derived(
        ("part of", preferred), lambda has: len(preferred & has) / len(preferred), np.float64
    )
    return parts[question.columns.label_set[rows]]


def _cost_of(labels: LabelSet) -> float:
    text = dict(labels).get(COST_LABEL, "")
    return float(min(int(text), MAX_QUANTITY)) if text.isdecimal() else np.inf


def _cost(question: Question, rows: Rows) -> Points:
    """Most for the cheapest; a node that does not say its cost counts as the dearest that does."""
    costs = question.snapshot.label_sets.derived(COST_LABEL, _cost_of, np.float64)
    cost = costs[question.columns.label_set[rows]]
    told = cost[np.isfinite(cost)]
    if not len(told) or told.max() == told.min():
        return np.ones(len(rows))
    return (told.max() - np.minimum(cost, told.max())) / (told.max() - told.min())


def image_label(image: str) -> str:
    """The key of the label with which a node says that it has an image.

    `image/` and the image's name in small letters, with `-` for what no key may hold, cut from the
    front to a key's length: the end, with the tag, is what tells images apart.
    """
    name = re.sub("[^a-z0-9._/-]", "-", image.lower())
    name = name[len(_IMAGE_PREFIX) - LabelKey.max_length :].strip("._/-")
    return _IMAGE_PREFIX + name


def _warm_image(question: Question, rows: Rows) -> Points:
    """1 where the node says that it has the image, whatever the label's value."""
    image = question.wish.spec.run.image
    if image is None:
        return np.ones(len(rows))
    label = image_label(image)
    warm = question.snapshot.label_sets.derived(
        ("key", label), lambda has: any(key == label for key, _ in has), np.float64
    )
    return warm[question.columns.label_set[rows]]


def _tolerated(question: Question, rows: Rows) -> Points:
    """Less with every taint that asks to stay away and is not tolerated."""
    tolerations, effect = question.wish.spec.tolerations, TaintEffect.PREFER_NO_SCHEDULE
    points = question.snapshot.taint_sets.derived(
        (effect, tolerations),
        lambda taints: 1 / (1 + len(not_tolerated(taints, tolerations, effect))),
        np.float64,
    )
    return points[question.columns.taint_set[rows]]


SCORES = (
    Score("spread", _even_over_nodes, of_zone=_even_over_zones, moves=True),
    Score("packing", _packing, moves=True),
    Score("balance", _balance, moves=True),
    Score("locality", _locality),
    Score("cost", _cost),
    Score("warm_image", _warm_image),
    Score("tolerated", _tolerated),
)
