"""Starts a replica's command under a small shell that outlives the agent, and kills all of it."""

import os
import signal
import socket
import subprocess
from collections.abc import Collection, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

from durable.agent.process.replica_directory import ReplicaDirectory
from durable.authority.fleet.assignments import Assignment
from durable.failpoints import Failpoint, reach
from durable.model.running import AUTO, Limits, Run

PROC = Path("/proc")


def processes_of(directory: ReplicaDirectory) -> frozenset[int]:
    """Every process of the replica that we may see; blocks for some milliseconds."""
    try:
        lock = directory.lock.stat()
        names = os.listdir(PROC)
    except FileNotFoundError:
        return frozenset()
    cookie = os.fsencode(f"{COOKIE}={directory.path}")
    pids = (int(name) for name in names if name.isdigit() and int(name) != os.getpid())
    return frozenset(pid for pid in pids if _belongs(pid, lock, cookie))


def _belongs(pid: int, lock: os.stat_result, cookie: bytes) -> bool:
    # It may end while we look, or belong to another user.
    with suppress(OSError):
        if cookie in (PROC / str(pid) / "environ").read_bytes().split(b"\0"):
            return True
    with suppress(OSError):
        for descriptor in (PROC / str(pid) / "fd").iterdir():
            with suppress(OSError):
                if os.path.samestat(descriptor.stat(), lock):
                    return True
    return False


def terminate(directory: ReplicaDirectory, leader: int | None) -> None:
    """Asks the process group to end."""
    _signal_group(leader, processes_of(directory), signal.SIGTERM)


def kill(directory: ReplicaDirectory, leader: int | None) -> frozenset[int]:
    """Kills the process group and whatever escaped from it; returns what was found alive."""
    found = processes_of(directory)
    _signal_group(leader, found, signal.SIGKILL)
    for pid in found:
        _kill_one(pid, directory)
    return found


def _signal_group(leader: int | None, found: frozenset[int], number: int) -> None:
    if leader is None:
        return
    # As long as a process of ours is in the group, the kernel does not reuse its number.
    if any(_group_of(pid) == leader for pid in found) or not PROC.exists():
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(leader, number)


def _group_of(pid: int) -> int | None:
    with suppress(ProcessLookupError):
        return os.getpgid(pid)
    return None


def _kill_one(pid: int, directory: ReplicaDirectory) -> None:
    with suppress(ProcessLookupError, PermissionError, OSError):
        # The descriptor pins the process, so after this second check it is still the one we mean.
        descriptor = os.pidfd_open(pid)
        try:
            cookie = os.fsencode(f"{COOKIE}={directory.path}")
            if _belongs(pid, directory.lock.stat(), cookie):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        finally:
            os.close(descriptor)


PORT_ATTEMPTS = 100
LOOPBACK = "127.0.0.1"
# In the environment of every process of the replica, so that one that closed the lock is found.
COOKIE = "DURABLE_REPLICA"

# Limits and directory apply to the command alone: the shell must be able to write the exit code.
_WRAPPER = """
directory=$1 work=$2 files=$3 memory=$4 cpu=$5
shift 5
echo $$ > "$directory/pid.new" && /bin/mv "$directory/pid.new" "$directory/pid" || exit 1
trap : TERM INT HUP QUIT
(
    cd "$work" || exit 126
    [ -z "$files" ] || ulimit -n "$files" || exit 126
    [ -z "$memory" ] || ulimit -v "$memory" || exit 126
    [ -z "$cpu" ] || ulimit -t "$cpu" || exit 126
    exec "$@"
)
echo $? > "$directory/exit.new" && /bin/mv "$directory/exit.new" "$directory/exit"
"""


def launch(
    assignment: Assignment, run: Run, directory: ReplicaDirectory
) -> subprocess.Popen[bytes]:
    """Spawns the shell; the caller has claimed the directory and never calls this again for it."""
    with ExitStack() as ours:
        lock = directory.take_lock()
        ours.callback(os.close, lock)
        # Opened to append, so that a log can be cut while the replica writes to it.
        stdout = ours.enter_context(directory.stdout.open("ab"))
        stderr = ours.enter_context(directory.stderr.open("ab"))
        reach(Failpoint.BEFORE_SPAWN)
        child = subprocess.Popen(  # noqa: S603 - its purpose is to run what the workload says
            [
                *("/bin/sh", "-c", _WRAPPER, "durable-replica", str(directory.path)),
                run.working_directory or str(directory.work),
                *_limits(run.limits),
                *run.command,
            ],
            env=environment_of(assignment, run, directory),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
            pass_fds=(lock,),
        )
        reach(Failpoint.AFTER_SPAWN)
    # Our descriptor is closed: from here on the lock is held for as long as the replica is alive.
    return child


def _limits(limits: Limits) -> tuple[str, str, str]:
    memory = limits.address_space_mib
    return (
        str(limits.open_files or ""),
        str(memory * 1024 if memory else ""),
        str(limits.cpu_seconds or ""),
    )


def environment_of(
    assignment: Assignment, run: Run, directory: ReplicaDirectory
) -> Mapping[str, str]:
    """Nothing of the agent's own environment but PATH, HOME and LANG: its secrets stay with it."""
    base = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": os.environ.get("HOME", "/"),
        "LANG": os.environ.get("LANG", "C.UTF-8"),
    }
    own = {
        "DURABLE_REGION": str(assignment.region),
        "DURABLE_NODE": str(assignment.node),
        "DURABLE_TENANT": str(assignment.tenant),
        "DURABLE_WORKLOAD": str(assignment.workload),
        "DURABLE_GENERATION": str(assignment.generation),
        "DURABLE_SLOT": str(assignment.slot),
        "DURABLE_TOKEN": str(assignment.token),
        "DURABLE_DEVICES": ",".join(assignment.devices),
        COOKIE: str(directory.path),
    }
    port = directory.port
    return base | dict(run.environment) | own | ({} if port is None else {"PORT": str(port)})


def port_for(run: Run, taken: Collection[int]) -> int | None:
    """A free port that no other replica here was given, if a probe needs one."""
    readiness = run.readiness
    probe = None if readiness is None else readiness.tcp or readiness.http
    if probe is None or probe.port != AUTO:
        return None
    for _ in range(PORT_ATTEMPTS):
        with socket.socket() as found:
            found.bind((LOOPBACK, 0))
            port: int = found.getsockname()[1]
        if port not in taken:
            return port
    raise OSError(f"no free port was found in {PORT_ATTEMPTS} attempts")
