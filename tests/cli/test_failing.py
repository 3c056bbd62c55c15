"""How commands fail: a sentence for people, one object for programs, and an exit code."""

import json
from pathlib import Path
from typing import Any, NoReturn

import pytest

from .terminal import Terminal

SERVICE = "tenant: shop\nname: web\nspec:\n  replicas: 1\n  resources: {cpu: 1}\n"


@pytest.fixture
def terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Terminal:
    """A terminal where no stack runs."""
    monkeypatch.setenv("DURABLE_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.delenv("DURABLE_DATABASE_URL", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    return Terminal(capsys)


def failure(terminal: Terminal, code: int, *arguments: str) -> Any:
    assert terminal.run(*arguments, "--json") == code, terminal.stderr
    told = json.loads(terminal.stdout)
    assert set(told) == {"error"}
    assert told["error"]["message"].split()[0] in terminal.stderr
    return told["error"]


@pytest.mark.parametrize(
    ("arguments", "exit_code", "code"),
    [
        (("fleet", "show"), 1, "stack"),
        (("explain", "shop/web"), 1, "stack"),
        (("apply", "-f", "missing.yaml"), 2, "manifest"),
        (("explain", "web"), 2, "usage"),
        (("get", "decisions"), 2, "usage"),
        (("get", "nodes", "--limit", "0"), 2, "usage"),
        (("get", "nothing"), 2, "usage"),
    ],
)
def test_programs_are_told_of_a_failure_in_one_object(
    terminal: Terminal, arguments: tuple[str, ...], exit_code: int, code: str
) -> None:
    assert failure(terminal, exit_code, *arguments)["code"] == code


def test_a_wrong_setting_and_what_nobody_foresaw_are_told_as_well(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_down(*_: object) -> NoReturn:
        raise LookupError("nobody foresaw this")

    monkeypatch.setattr("durable.cli.commands.fleet.with_authority", break_down)
    told = failure(terminal, 1, "fleet", "show")
    assert told == {"code": "unexpected", "message": "LookupError: nobody foresaw this"}
    monkeypatch.setenv("DURABLE_NONSENSE", "1")
    assert failure(terminal, 2, "doctor")["code"] == "settings"


def test_people_are_told_on_stderr_alone(terminal: Terminal) -> None:
    assert "durable up" in terminal.refused("fleet", "show")


def test_a_list_of_decisions_needs_a_workload_and_shows_how_to_name_it(terminal: Terminal) -> None:
    assert "durable get decisions risk/risk-api" in terminal.wrong("get", "decisions")
    assert terminal.run("get", "decisions", "--help") == 0
    assert "risk/risk-api" in terminal.stdout


def interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def test_an_interrupt_during_the_imports_is_a_word(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("durable.cli.registry.import_module", interrupt)
    assert terminal.run("get", "nodes") == 130
    assert (terminal.stdout, terminal.stderr) == ("", "Interrupted.\n")


@pytest.mark.parametrize("command", ["apply", "scale", "delete"])
def test_who_no_longer_waits_is_told_that_it_goes_on(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str
) -> None:
    (tmp_path / "web.yaml").write_text(SERVICE)
    arguments = {
        "apply": ("-f", str(tmp_path / "web.yaml")),
        "scale": ("shop/web", "2"),
        "delete": ("shop/web",),
    }
    module = "apply" if command == "apply" else "workloads"
    monkeypatch.setattr(f"durable.cli.commands.{module}.with_durable", interrupt)
    assert terminal.run(command, *arguments[command], "--json") == 130
    assert "continues in the background; see `durable get workloads`" in terminal.stderr
    assert json.loads(terminal.stdout)["error"]["code"] == "interrupted"
