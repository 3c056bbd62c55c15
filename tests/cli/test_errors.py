"""How commands fail: a sentence for people, one object for programs, and an exit code."""

import json
from pathlib import Path
from typing import Any, NoReturn

import pytest

from .builders import service
from .conftest import Write
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
    report = json.loads(terminal.stdout)
    assert set(report) == {"error"}
    assert report["error"]["message"].split()[0] in terminal.stderr
    return report["error"]


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
def test_programs_read_a_failure_as_one_object(
    terminal: Terminal, arguments: tuple[str, ...], exit_code: int, code: str
) -> None:
    assert failure(terminal, exit_code, *arguments)["code"] == code


def test_a_wrong_setting_and_an_unexpected_error_are_reported_as_well(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_down(*_: object) -> NoReturn:
        raise LookupError("nobody foresaw this")

    monkeypatch.setattr("durable.cli.commands.fleet.with_authority", break_down)
    report = failure(terminal, 1, "fleet", "show")
    assert report == {"code": "unexpected", "message": "LookupError: nobody foresaw this"}
    monkeypatch.setenv("DURABLE_NONSENSE", "1")
    assert failure(terminal, 2, "doctor")["code"] == "settings"


def test_people_read_errors_on_stderr_alone(terminal: Terminal) -> None:
    assert "durable up" in terminal.refused("fleet", "show")


def test_a_list_of_decisions_needs_a_workload_and_shows_how_to_name_it(terminal: Terminal) -> None:
    assert "durable get decisions risk/risk-api" in terminal.wrong("get", "decisions")
    assert terminal.run("get", "decisions", "--help") == 0
    assert "risk/risk-api" in terminal.stdout


def interrupt(*_: Any, **__: Any) -> NoReturn:
    raise KeyboardInterrupt


def test_an_interrupt_during_the_imports_is_one_sentence(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("durable.cli.main.import_module", interrupt)
    assert terminal.run("get", "nodes") == 130
    assert (terminal.stdout, terminal.stderr) == ("", "Interrupted.\n")


@pytest.mark.parametrize("command", ["apply", "scale", "delete"])
def test_an_interrupt_says_that_the_change_continues(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str
) -> None:
    (tmp_path / "web.yaml").write_text(SERVICE)
    arguments = {
        "apply": ("-f", str(tmp_path / "web.yaml")),
        "scale": ("shop/web", "2"),
        "delete": ("shop/web",),
    }
    module = "commands.apply" if command == "apply" else "verbs"
    monkeypatch.setattr(f"durable.cli.{module}.with_durable", interrupt)
    assert terminal.run(command, *arguments[command], "--json") == 130
    assert "continues in the background; see `durable get workloads`" in terminal.stderr
    assert json.loads(terminal.stdout)["error"]["code"] == "interrupted"


def test_every_refusal_has_its_own_code(at_plane: Terminal, write: Write) -> None:
    at_plane.json("apply", "-f", write(service("coded", 1)), "--request-id", "r1")
    job = service("coded-job", 1, more="  kind: job\n")
    at_plane.json("apply", "-f", write(job), "--no-wait")
    assert at_plane.refusal("scale", "shop/coded-job", "2") == "job_not_scaled"
    assert at_plane.refusal("scale", "shop/nobody", "2") == "unknown_workload"
    assert at_plane.refusal("scale", "shop/coded", "2", "--request-id", "r1") == "key_conflict"
    evict = ("evict", "--reason", "x", "--slot", "7")
    assert at_plane.refusal("send", "shop/coded", *evict) == "unknown_slot"
    placements = at_plane.json("get", "placements", "--tenant", "shop")["placements"]
    one = next(row["placement"] for row in placements if "/coded/" in row["placement"])
    assert at_plane.refusal("send", one, *evict) == "unknown_slot"
    assert at_plane.refusal("explain", "shop/nobody") == "unknown_workload"
    assert at_plane.refusal("explain", "shop/coded", "--slot", "7") == "unknown_slot"
    assert at_plane.refusal("explain", "shop/coded", "--generation", "7") == "unknown_generation"
    assert at_plane.refusal("explain", "shop/coded", "--attempt", "700") == "unknown_attempt"
    assert at_plane.refusal("logs", "shop/coded", "0") == "simulated_node"
    assert at_plane.refusal("logs", "shop/coded", "9") == "not_bound"
    at_plane.json("delete", "shop/coded")
    again = ("apply", "-f", write(service("coded", 1)), "--request-id", "r1")
    assert at_plane.refusal(*again) == "deleted_since"
