"""Who holds a placement is read from its wait, and is not known while nobody can be asked."""

from pathlib import Path

from durable.cli.render.holds import Hold, hold_in, read_holds
from durable.model.pending_reasons import PendingCode
from durable.settings import Settings
from tests.model.pending import pending

HELD = str(pending(PendingCode.HELD, "Held by person:ann: INC-1 (really)"))
FULL = str(pending(PendingCode.CAPACITY, "Held by nobody, but no node has room"))


def test_a_wait_that_is_a_hold_names_who_holds() -> None:
    assert hold_in(HELD) == "person:ann: INC-1 (really)"
    assert hold_in(FULL) is None
    assert hold_in(None) is None


async def test_without_temporal_only_a_wait_tells_of_a_hold(tmp_path: Path) -> None:
    nowhere = Settings(state_dir=tmp_path, temporal_address="127.0.0.1:1")
    told = await read_holds(nowhere, {"waits": HELD, "full": FULL, "placed": None})
    assert told == {
        "waits": Hold(True, "person:ann: INC-1 (really)"),
        "full": Hold(None, None),
        "placed": Hold(None, None),
    }
