"""Every subcommand is listed as it describes itself, and costs only what it needs."""

import subprocess
import sys

import pytest

from durable.cli.main import SUBCOMMANDS, app_for

from .terminal import Terminal

HEAVY = ("temporalio", "sqlalchemy", "psycopg", "numpy", "alembic", "pydantic")
LOADED = f"import sys; print([name for name in {HEAVY} if name in sys.modules])"


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_a_subcommand_is_described_as_the_list_describes_it(name: str) -> None:
    app = app_for([name])
    helps = [
        one.help for one in (*app.registered_commands, *app.registered_groups) if one.name == name
    ]
    assert helps == [SUBCOMMANDS[name].sentence]


def test_an_option_before_it_does_not_hide_the_subcommand(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DURABLE_DEBUG", "")
    terminal = Terminal(capsys)
    assert terminal.run("--debug", "status", "--help") == 0
    assert "--state-dir" in terminal.stdout


def test_a_misspelt_subcommand_gets_a_suggestion(
    capsys: pytest.CaptureFixture[str],
) -> None:
    message = Terminal(capsys).wrong("aply")
    assert "apply" in message


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_help_and_version_import_nothing_heavy(option: str) -> None:
    command = f"from durable.cli.main import execute; execute(['{option}']); {LOADED}"
    done = subprocess.run(
        [sys.executable, "-c", command], capture_output=True, text=True, check=True, timeout=100
    )
    assert done.stdout.splitlines()[-1] == "[]"


READERS = ("explain", "get", "queue", "logs", "audit", "doctor", "agent")


def test_commands_that_only_read_the_authority_do_not_load_temporal() -> None:
    """One process loads one after the other: importing takes a second, and is what is tested."""
    each = f"print(name); app_for([name]); {LOADED}"
    command = f"from durable.cli.main import app_for\nfor name in {READERS}: {each}"
    done = subprocess.run(
        [sys.executable, "-c", command], capture_output=True, text=True, check=True, timeout=100
    )
    assert len(done.stdout.splitlines()) == 2 * len(READERS)
    assert "temporalio" not in done.stdout


def test_the_help_of_a_switch_names_no_value(capsys: pytest.CaptureFixture[str]) -> None:
    terminal = Terminal(capsys)
    assert terminal.run("get", "workloads", "--help") == 0
    [line] = [line for line in terminal.stdout.splitlines() if "--json" in line]
    assert "<bool>" not in line
