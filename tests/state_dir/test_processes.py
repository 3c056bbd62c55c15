"""A process is signalled only while it is the very process that was meant."""

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from durable.state_dir.processes import Process, identify, is_alive, send_signal, wait_gone
from tests.stack.polling import DEADLINE_SECONDS


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as child:
        yield child
        child.kill()


def test_a_reused_pid_is_never_signalled(sleeper: subprocess.Popen[bytes]) -> None:
    earlier = Process(pid=sleeper.pid, started="another start time")

    assert not is_alive(earlier)
    assert not send_signal(earlier, signal.SIGKILL)
    assert sleeper.poll() is None


def test_a_process_is_gone_when_it_has_ended_though_nobody_reaped_it(
    sleeper: subprocess.Popen[bytes],
) -> None:
    process = identify(sleeper.pid)
    assert process is not None

    assert send_signal(process, signal.SIGKILL)
    assert wait_gone(process, DEADLINE_SECONDS)

    # Until it is reaped it is a zombie, which takes signals and does nothing.
    assert identify(sleeper.pid) is None
    sleeper.wait()
    assert not send_signal(process, signal.SIGKILL)


def test_waiting_for_a_process_that_stays_ends_at_the_deadline(
    sleeper: subprocess.Popen[bytes],
) -> None:
    process = identify(sleeper.pid)
    assert process is not None

    assert not wait_gone(process, 0.05)
