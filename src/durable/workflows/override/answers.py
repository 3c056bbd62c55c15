"""What the sender of a message to an override is told, once regions were asked to obey."""

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from durable.workflows.override.state import OverrideMemory


def answer_of(answer: str, memory: OverrideMemory) -> str:
    """The authority's answer with what regions know of it, so that it promises nothing else."""
    override, spread = memory.override, memory.spread
    if override is None or override.activated_at is None:
        return answer  # no region ever obeyed it
    if memory.is_spread:
        return f"{answer} It no longer has any effect." if override.has_ended else answer
    were_asked = spread is not None and spread.number >= override.number
    away = ", ".join(spread.missing) if spread is not None and were_asked else "the regions"
    if override.has_ended:
        return (
            f"{answer} It may still be obeyed in {away} until the news arrives, at the latest "
            f"until {override.expires_at:%Y-%m-%d %H:%M:%S}Z."
        )
    return f"{answer} Not reached yet, and told later: {away}."
