"""Amounts in tables, for people: in cores and Gi where that is shorter; JSON has them exactly."""

from durable.model.resources import Resources
from durable.validation.quantities import show_cpu, show_memory

CORE, GI = 1_000, 1_024


def show_rounded(amount: Resources) -> str:
    """`145.6 cpu, 159.8Gi, 2 gpu`: what is a core or a Gi and more has at most one decimal."""
    if amount.is_zero:
        return "none"
    parts = [_cpu(amount.cpu_millis)]
    if amount.memory_mib:
        parts.append(_memory(amount.memory_mib))
    if amount.gpus:
        parts.append(f"{amount.gpus} gpu")
    return ", ".join(parts)


def _cpu(millis: int) -> str:
    is_short = millis < CORE or millis % CORE == 0
    return show_cpu(millis) if is_short else f"{millis / CORE:.1f} cpu"


def _memory(mib: int) -> str:
    is_short = mib < GI or mib % GI == 0
    return show_memory(mib) if is_short else f"{mib / GI:.1f}Gi"
