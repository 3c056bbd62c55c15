"""What nodes are marked with: labels that the work requires, and taints it does not tolerate."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from durable.model.labels import TaintEffect
from durable.model.pending_reasons import PendingCode
from durable.model.workload import Toleration
from durable.scheduling.filters.filter import Filter, by_number
from durable.scheduling.question import Question, Some
from durable.scheduling.snapshot.columns import Mask
from durable.scheduling.snapshot.region import LabelSet, TaintSet
from durable.scheduling.snapshot.rows import Rows


def _lacks_labels(question: Question, rows: Some) -> Mask | None:
    required = question.wish.spec.requirements.labels
    if not required:
        return None
    pairs = frozenset(required.items())
    table = question.snapshot.label_sets
    has_all = table.derived(("all of", pairs), lambda has: pairs <= has, np.bool_)
    return ~has_all[question.columns.label_set[rows]]


def _label_words(question: Question, rows: Rows) -> Counter[str]:
    sets = question.snapshot.label_sets.things
    required = sorted(question.wish.spec.requirements.labels.items())

    def first_missing(number: int) -> str:
        has: LabelSet = sets[number]
        key, value = next(pair for pair in required if pair not in has)
        return f"label {key}={value} missing"

    return by_number(question.columns.label_set[rows], first_missing)


def tolerates(tolerations: Sequence[Toleration], taint: tuple[str, str, str]) -> bool:
    """Whether any toleration names the taint; one without a value or an effect names any."""
    key, value, effect = taint
    return any(
        toleration.key == key
        and toleration.value in (None, value)
        and toleration.effect in (None, effect)
        for toleration in tolerations
    )


def not_tolerated(
    taints: TaintSet, tolerations: Sequence[Toleration], effect: TaintEffect
) -> list[tuple[str, str, str]]:
    return [taint for taint in taints if taint[2] == effect and not tolerates(tolerations, taint)]


def _tainted(question: Question, rows: Some) -> Mask:
    tolerations = question.wish.spec.tolerations
    keeps_out = question.snapshot.taint_sets.derived(
        (TaintEffect.NO_SCHEDULE, tolerations),
        lambda taints: bool(not_tolerated(taints, tolerations, TaintEffect.NO_SCHEDULE)),
        np.bool_,
    )
    return keeps_out[question.columns.taint_set[rows]]


def _taint_words(question: Question, rows: Rows) -> Counter[str]:
    sets = question.snapshot.taint_sets.things
    tolerations = question.wish.spec.tolerations

    def first_taint(number: int) -> str:
        found = not_tolerated(sets[number], tolerations, TaintEffect.NO_SCHEDULE)
        key, value, _effect = found[0]
        return f"taint {key}={value}"

    return by_number(question.columns.taint_set[rows], first_taint)


LABELS = Filter("required_labels", PendingCode.REQUIREMENTS, _lacks_labels, _label_words)
TAINTS = Filter("taint", PendingCode.TAINTED, _tainted, _taint_words)
