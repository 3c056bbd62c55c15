"""What the authority has not yet heard: the newest state of each replica, kept until accepted.

Only the newest counts, so an authority that is away for a day costs one entry per replica.
"""

from itertools import count


class Outbox:
    """Tokens with something to tell, each with the number of its newest change.

    The numbers grow over the agent's whole life, so they serve as the sequence of every session.
    """

    def __init__(self) -> None:
        self._numbers = count(1)
        self._waiting: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, token: int) -> None:
        # Moved to the end: a replica that flaps does not push itself ahead of the others.
        self._waiting.pop(token, None)
        self._waiting[token] = next(self._numbers)

    def waiting(self) -> list[tuple[int, int]]:
        """Every token that waits with its number, the longest waiting first."""
        return list(self._waiting.items())

    def heard(self, token: int, number: int) -> None:
        """Ends the entry, unless something newer was put while the message was on its way."""
        if self._waiting.get(token) == number:
            del self._waiting[token]

    def drop(self, token: int) -> None:
        self._waiting.pop(token, None)
