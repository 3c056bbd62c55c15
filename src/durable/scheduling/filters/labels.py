"""A node must have every label that the work requires."""

from collections import Counter

import numpy as np

from durable.model.placement.pending_reasons import PendingCode
from durable.scheduling.filters.filter import Filter, count_by_id
from durable.scheduling.snapshot.columns import Mask, Rows
from durable.scheduling.working_set import RowSelection, WorkingSet


def _lacks_a_label(working: WorkingSet, rows: RowSelection) -> Mask | None:
    required = working.request.spec.requirements.labels
    if not required:
        return None
    pairs = frozenset(required.items())
    has_all = working.snapshot.label_sets.derived(
        ("all of", pairs), lambda has: pairs <= has, np.bool_
    )
    return ~has_all[working.columns.label_set[rows]]


def _words(working: WorkingSet, rows: Rows) -> Counter[str]:
    label_sets = working.snapshot.label_sets.values
    required = sorted(working.request.spec.requirements.labels.items())

    def first_missing(id: int) -> str:
        key, value = next(pair for pair in required if pair not in label_sets[id])
        return f"label {key}={value} missing"

    return count_by_id(working.columns.label_set[rows], first_missing)


LABELS = Filter("required_labels", PendingCode.REQUIREMENTS, _lacks_a_label, _words)
