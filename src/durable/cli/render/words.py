"""Numbers in sentences."""


def counted(count: int, noun: str) -> str:
    """`1 slot`, `2 slots`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
