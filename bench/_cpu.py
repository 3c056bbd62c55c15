"""What processes have cost so far: CPU by name, children included, as Linux counts it."""

import os
from collections.abc import Mapping
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def spent(pids: Mapping[str, int]) -> dict[str, float]:
    """Milliseconds of each process and its children, but for those that have a name as well."""
    found = {int(stat.parent.name): _read(stat) for stat in Path("/proc").glob("[0-9]*/stat")}
    of = {one: one if one in pids.values() else parent for one, (parent, _) in found.items()}
    return {
        name: sum(cost for one, (_, cost) in found.items() if of[one] == pid)
        for name, pid in pids.items()
    }


def each(before: Mapping[str, float], after: Mapping[str, float], count: int) -> dict[str, float]:
    return {name: (after[name] - before[name]) / count for name in before}


def _read(stat: Path) -> tuple[int, float]:
    """The parent, and the milliseconds; nothing for a process that has ended since."""
    try:
        fields = stat.read_text().rpartition(")")[2].split()
    except OSError:
        return 0, 0.0
    return int(fields[1]), (int(fields[11]) + int(fields[12])) * 1000 / _TICKS_PER_SECOND
