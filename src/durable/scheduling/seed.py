"""The only randomness of a decision: numbers that the wish alone determines, for ever."""

import hashlib

import numpy as np
from numpy.typing import NDArray

from durable.scheduling.wish import Wish


def numbers_for(wish: Wish, count: int) -> NDArray[np.float64]:
    """So many numbers in [0, 1), the same for the same attempt at the same workload."""
    who = (wish.tenant, wish.workload, wish.generation, wish.attempt, wish.region)
    digest = hashlib.sha256("/".join(map(str, who)).encode()).digest()
    # A bit generator's raw stream never changes; those of a Generator's methods may.
    stream = np.random.PCG64(int.from_bytes(digest[:16], "big"))
    raw: NDArray[np.uint64] = stream.random_raw(count)
    return (raw >> np.uint64(11)).astype(np.float64) * 2.0**-53
