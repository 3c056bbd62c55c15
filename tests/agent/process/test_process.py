"""Real processes: what they are given, and how their end is reported."""

from pathlib import Path

import pytest

from durable.agent.process.launcher import environment_of
from durable.agent.process.replica_directory import ReplicaDirectory
from durable.authority.fleet.assignments import Assignment
from durable.model.ids import NodeId
from durable.model.placement.intents import ReleaseCause
from durable.model.work.stand_ins import stand_in_for
from tests.agent.commands import FOREVER, directory_of, runs, shell
from tests.agent.region import LiveRegion, workload
from tests.agent.waiting import eventually
from tests.authority.world import API, EAST, RISK, T0


async def test_without_a_probe_it_serves_as_soon_as_it_runs(process_region: LiveRegion) -> None:
    token = await process_region.run(0, runs(*FOREVER))
    await process_region.until(token, "serving")
    await process_region.evict(token)
    assert "SIGTERM" in await process_region.until(token, "stopped")


@pytest.mark.parametrize(("slot", "shown"), [(3, "3"), (stand_in_for(3), "3")])
def test_a_stand_in_is_told_the_slot_that_it_serves_for(
    tmp_path: Path, slot: int, shown: str
) -> None:
    spec = shell("true")
    one = Assignment(
        region=EAST, token=1, node=NodeId("n1"), tenant=RISK, workload=API, generation=1,
        slot=slot, attempt=1, bound_at=T0, devices=(), spec=spec,
    )  # fmt: skip
    directory = ReplicaDirectory(tmp_path / "1")
    assert directory.claim(one, None)
    assert environment_of(one, spec.run, directory)["DURABLE_SLOT"] == shown


async def test_its_environment_is_clean_and_identifies_the_replica(
    process_region: LiveRegion, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_SECRET", "not for replicas")
    spec = shell("env; pwd", environment={"COLOUR": "blue", "DURABLE_TOKEN": "forged"})
    token = await process_region.run(3, spec)
    await process_region.until(token, "stopped")

    lines = (directory_of(tmp_path, token) / "stdout.log").read_text().splitlines()
    given = dict(line.split("=", 1) for line in lines if "=" in line)
    assert given["COLOUR"] == "blue"
    assert given["DURABLE_TENANT"] == "risk"
    assert given["DURABLE_WORKLOAD"] == "api"
    assert given["DURABLE_GENERATION"] == "1"
    assert given["DURABLE_SLOT"] == "3"
    assert given["DURABLE_TOKEN"] == str(token)
    assert given["DURABLE_NODE"] == "n1"
    assert given["DURABLE_DEVICES"] == ""
    assert "AGENT_SECRET" not in given
    assert lines[-1] == str(directory_of(tmp_path, token) / "work")


async def test_limits_hold_every_process_of_it(process_region: LiveRegion, tmp_path: Path) -> None:
    limits = {"open_files": 64, "address_space_mib": 512, "cpu_seconds": 30}
    script = "ulimit -n; ulimit -v; ulimit -t; sh -c 'ulimit -n'"
    token = await process_region.run(0, shell(script, limits=limits))
    await process_region.until(token, "stopped")

    printed = (directory_of(tmp_path, token) / "stdout.log").read_text().split()
    assert printed == ["64", str(512 * 1024), "30", "64"]


# The last is the code as programs read it: there is none where a signal has ended it.
ENDS = (
    ("exit 0", "stopped", "exit code 0", 0),
    ("exit 3", "failed", "exit code 3", 3),
    ("kill -KILL $$", "failed", "SIGKILL", None),
    ("exec /no/such/command", "failed", "exit code 127", 127),
)


async def test_its_end_is_reported_by_how_it_ended_and_where_its_logs_are(
    process_region: LiveRegion, tmp_path: Path
) -> None:
    tokens = [
        await process_region.run(slot, shell(script), generation=slot + 1)
        for slot, (script, *_) in enumerate(ENDS)
    ]
    for token, (_, state, evidence, code) in zip(tokens, ENDS, strict=True):
        assert evidence in await process_region.until(token, state)
        binding = await process_region.binding(token)
        assert binding.exit_code == code
        assert binding.log_directory == str(directory_of(tmp_path, token))


async def test_a_missing_directory_or_command_fails_with_a_reason(
    process_region: LiveRegion,
) -> None:
    nowhere = await process_region.run(0, shell("true", working_directory="/no/such/place"))
    assert "exit code 126" in await process_region.until(nowhere, "failed")
    nothing = await process_region.run(1, workload(), generation=2)
    assert "no command" in await process_region.until(nothing, "failed")


async def test_a_binding_without_a_description_fails_with_a_reason(
    process_region: LiveRegion,
) -> None:
    await process_region.request(None, generation=7)
    token = await process_region.run(0, generation=7)
    assert "no description" in await process_region.until(token, "failed")


async def test_logs_stay_bounded(process_region: LiveRegion, tmp_path: Path) -> None:
    script = "yes 0123456789012345678901234567890123456789 | head -c 40000000; sleep 1000"
    token = await process_region.run(0, shell(script))
    log = directory_of(tmp_path, token) / "stdout.log"
    await eventually("the log was cut", log.with_name("stdout.log.1").exists)

    def is_small() -> bool:
        return log.stat().st_size <= 8 * 1024**2

    await eventually("the log is small", is_small)
    assert log.with_name("stdout.log.1").stat().st_size <= 8 * 1024**2


async def test_a_released_directory_is_closed_and_the_oldest_are_removed(
    process_region: LiveRegion, tmp_path: Path
) -> None:
    token = await process_region.run(0, shell("exit 0"))
    await process_region.until(token, "stopped")
    await process_region.release(token, 0, ReleaseCause.STOPPED)
    await eventually("it is closed", (directory_of(tmp_path, token) / "closed").exists)
