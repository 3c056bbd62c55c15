"""Amounts of cpu, memory and gpus: plain tuples, added, compared and shown in this place alone.

They may be negative where they say what is left: a node or a grant may shrink below its use.
"""

from durable.validation.quantities import show_cpu, show_memory

DIMENSIONS = ("cpu_millis", "memory_mib", "gpus")
# The same as people write them.
DIMENSION_NAMES = ("cpu", "memory", "gpu")

Amounts = tuple[int, int, int]
NOTHING: Amounts = (0, 0, 0)


def plus(left: Amounts, right: Amounts) -> Amounts:
    return (left[0] + right[0], left[1] + right[1], left[2] + right[2])


def minus(left: Amounts, right: Amounts) -> Amounts:
    return (left[0] - right[0], left[1] - right[1], left[2] - right[2])


def times(amounts: Amounts, count: int) -> Amounts:
    return (amounts[0] * count, amounts[1] * count, amounts[2] * count)


def at_least_nothing(amounts: Amounts) -> Amounts:
    return (max(0, amounts[0]), max(0, amounts[1]), max(0, amounts[2]))


def at_most(left: Amounts, right: Amounts) -> bool:
    """Whether `left` fits into `right`, in every dimension."""
    return left[0] <= right[0] and left[1] <= right[1] and left[2] <= right[2]


def lower_of(left: Amounts, right: Amounts) -> Amounts:
    """The lower amount in each dimension."""
    return (min(left[0], right[0]), min(left[1], right[1]), min(left[2], right[2]))


def how_often(left: Amounts, each: Amounts) -> int:
    """How many times `each` fits into what is left; `each` must not be nothing."""
    return min(max(0, have // one) for have, one in zip(left, each, strict=True) if one)


def show_dimension(dimension: int, amount: int) -> str:
    """One amount with its unit and its name."""
    if DIMENSIONS[dimension] == "cpu_millis":
        return show_cpu(amount)
    is_memory = DIMENSIONS[dimension] == "memory_mib"
    return f"{show_memory(amount)} memory" if is_memory else f"{amount} gpu"


def show_amounts(amounts: Amounts) -> str:
    """For a sentence: `2 cpu, 4Gi, 1 gpu`; less than nothing is shown as nothing."""
    cpu_millis, memory_mib, gpus = at_least_nothing(amounts)
    parts = [show_cpu(cpu_millis)]
    if memory_mib:
        parts.append(show_memory(memory_mib))
    if gpus:
        parts.append(f"{gpus} gpu")
    return ", ".join(parts)
