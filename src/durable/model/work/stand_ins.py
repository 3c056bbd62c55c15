"""The numbers of stand-ins: what serves elsewhere for a replica that its lost region keeps.

A slot has one claim at any time. So where the original is to go on, its slot stays with its region,
and the replica that serves for it meanwhile has a number of its own, above every slot of a share
and every surge slot.
"""

FIRST = 50_000


def stand_in_for(slot: int) -> int:
    """The number of the replica that serves while the original of this slot is cut off."""
    return FIRST + slot


def served_slot(slot: int) -> int:
    """The slot for which a replica serves: its own, or that of the original it stands in for."""
    return slot - FIRST if slot >= FIRST else slot
