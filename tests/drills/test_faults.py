"""Nodes that a drill takes away come back, and faults of others stay."""

from pathlib import Path

import pytest

from durable.agent.simulated.faults import FaultKind, read_faults
from durable.drills.faults import BrokenNodes
from durable.stack.control_plane import FAULTS
from durable.state_dir.record import StackError


def _fail_after_losing(directory: Path) -> None:
    with BrokenNodes(directory) as nodes:
        nodes.lose(region="us-east", zone="us-east-a")
        [fault] = read_faults(directory / FAULTS)
        assert (fault.kind, fault.region, fault.zone) == (FaultKind.LOST, "us-east", "us-east-a")
        raise RuntimeError


def test_a_lost_zone_is_given_back_also_when_the_drill_fails(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError):
        _fail_after_losing(tmp_path)
    assert read_faults(tmp_path / FAULTS) == ()


def test_faults_that_were_there_before_stay(tmp_path: Path) -> None:
    (tmp_path / FAULTS).write_text('[{"kind": "crash", "workload": "risk/risk-api"}]')
    before = read_faults(tmp_path / FAULTS)
    with BrokenNodes(tmp_path) as nodes:
        nodes.lose(region="us-east")
        assert len(read_faults(tmp_path / FAULTS)) == 2
    assert read_faults(tmp_path / FAULTS) == before


def test_faults_that_cannot_be_read_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / FAULTS).write_text("kind: [")
    with pytest.raises(StackError, match="cannot be read"):
        BrokenNodes(tmp_path)
