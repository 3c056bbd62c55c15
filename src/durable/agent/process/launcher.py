"""Starts a replica's command under a small shell that outlives the agent."""

import os
import socket
import subprocess
import sys
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from pathlib import Path

import durable
from durable.agent.driver import FENCED
from durable.agent.process.killing import COOKIE
from durable.agent.process.node_directory import lease_file
from durable.agent.process.replica_directory import ReplicaDirectory
from durable.authority.fleet.assignments import Assignment
from durable.failpoints import Failpoint, reach
from durable.model.work.running import AUTO, Limits, OnDisconnect, Run
from durable.model.work.stand_ins import served_slot

PORT_ATTEMPTS = 100
LOOPBACK = "127.0.0.1"
# The folder that holds the package, for a watchdog that loads nothing else.
SOURCE = Path(durable.__file__).parent.parent
_WATCHDOG = (
    "import sys; sys.path.insert(0, sys.argv.pop(1));"
    " from durable.agent.process.watchdog import main; main()"
)

# The watchdog is on guard before the command runs, or the command does not run. Limits and
# directory apply to the command alone: the shell must be able to write the exit code.
_WRAPPER = """
directory=$1 work=$2 files=$3 memory=$4 cpu=$5 python=$6 watchdog=$7 source=$8 lease=$9
shift 9
order=$1
shift
echo $$ > "$directory/pid.new" && /bin/mv "$directory/pid.new" "$directory/pid" || exit 1
trap : TERM INT HUP QUIT
[ -z "$python" ] ||
    /usr/bin/env -i "$python" -S -E -c "$watchdog" "$source" "$directory" "$lease" "$order" ||
    exit 1
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
                *_watchdog(assignment, run, directory),
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


def _watchdog(
    assignment: Assignment, run: Run, directory: ReplicaDirectory
) -> tuple[str, str, str, str, str]:
    """What the shell starts it with; an empty program if the replica asks for none."""
    is_wanted = run.on_disconnect is OnDisconnect.STOP
    lease = lease_file(directory.path.parent, assignment.region)
    order = FENCED.model_dump_json()
    return sys.executable if is_wanted else "", _WATCHDOG, str(SOURCE), str(lease), order


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
        "DURABLE_SLOT": str(served_slot(assignment.slot)),
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
