"""How real processes are stopped: politely, by force, and wherever they went."""

import os
from pathlib import Path

import pytest

from tests.agent.commands import directory_of, lives, number_in, python, shell
from tests.agent.region import LiveRegion


async def test_what_ignores_a_polite_stop_is_killed_after_its_grace(
    process_region: LiveRegion, tmp_path: Path
) -> None:
    script = "trap '' TERM; echo $$ > pid; while :; do sleep 0.1; done"
    token = await process_region.run(0, shell(script))
    pid = await number_in(directory_of(tmp_path, token) / "work" / "pid")

    await process_region.evict(token)

    assert "killed" in await process_region.until(token, "stopped")
    assert not lives(pid)


@pytest.mark.parametrize("closes", [False, True], ids=["holds the lock", "closed the lock"])
async def test_what_escaped_from_its_group_is_found_and_killed(
    process_region: LiveRegion, tmp_path: Path, closes: bool
) -> None:
    script = f"""
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
child = subprocess.Popen(
    ['sleep', '1000'], start_new_session=True, close_fds={closes},
)
open('pid.new', 'w').write(str(child.pid))
os.rename('pid.new', 'pid')
while True: time.sleep(0.1)
"""
    token = await process_region.run(0, python(script))
    escaped = await number_in(directory_of(tmp_path, token) / "work" / "pid")
    assert os.getsid(escaped) == escaped

    await process_region.evict(token)

    await process_region.until(token, "stopped")
    assert not lives(escaped)
