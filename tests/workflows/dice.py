"""What no workflow may do, in a module that one imports."""

import random
from datetime import datetime


def roll() -> float:
    return random.random()  # noqa: S311 - it never gets that far


def look_at_the_clock() -> str:
    return str(datetime.now())  # noqa: DTZ005 - it never gets that far
