"""Commands that send a message: what they take is what its row of the registry says."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from durable.cli import verbs
from durable.model.ids import OverrideId, RegionId
from durable.signals.registry import REGISTRY, Sender

from .terminal import Terminal

Call = tuple[str, Any, dict[str, Any]]


class Recorder:
    """Takes every call, and answers with its name."""

    def __init__(self, calls: list[Call], name: str = "") -> None:
        self._calls, self._name = calls, name

    def __getattr__(self, name: str) -> "Recorder":
        return Recorder(self._calls, f"{self._name}.{name}".lstrip("."))

    async def __call__(self, *given: Any, **fields: Any) -> str:
        self._calls.append((self._name, given, fields))
        return f"sent {self._name}"


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """What commands call of the SDK."""
    made: list[Call] = []

    def with_recorder(_: Any, use: Callable[[Any], Awaitable[Any]], **__: Any) -> Any:
        async def run() -> Any:
            return await use(Recorder(made))

        return asyncio.run(run())

    monkeypatch.setattr(verbs, "with_durable", with_recorder)
    return made


@pytest.fixture
def terminal(capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(capsys)


CALLS: list[tuple[tuple[str, ...], Call]] = [
    (
        ("override", "extend", "o-1", "--by", "30m"),
        ("overrides.extend", (OverrideId("o-1"),), {"by": timedelta(minutes=30)}),
    ),
    (("override", "revoke", "o-1"), ("overrides.revoke", (OverrideId("o-1"),), {})),
    (("recovery", "failback", "east"), ("recoveries.fail_back", (RegionId("east"),), {})),
    (("rollout", "pause", "risk/api"), ("send", (("risk", "api"), "pause"), {})),
    (
        ("rollout", "rollback", "risk/api", "--to", "3", "--no-wait"),
        ("send", (("risk", "api"), "rollback"), {"to": 3}),
    ),
    (
        ("replace", "risk/api", "--slot", "2", "--slot", "0", "--no-wait"),
        ("send", (("risk", "api"), "replace"), {"slots": (0, 2)}),
    ),
]


@pytest.mark.parametrize(("arguments", "call"), CALLS)
def test_a_command_sends_the_fields_of_its_payload(
    terminal: Terminal,
    calls: list[Call],
    arguments: tuple[str, ...],
    call: Call,
) -> None:
    answer = terminal.json(*arguments, "--reason", "INC-1", "--request-id", "r-1")["answer"]
    name, given, fields = call
    assert calls == [(name, given, {**fields, "reason": "INC-1", "request_id": "r-1"})]
    assert answer == f"sent {name}"


def test_what_a_payload_refuses_names_the_option(terminal: Terminal, calls: list[Any]) -> None:
    wrong = terminal.wrong("override", "extend", "o-1", "--by", "soon", "--reason", "x")
    assert "--by" in wrong
    assert calls == []


def test_a_reason_is_demanded_where_the_row_says_so(terminal: Terminal, calls: list[Any]) -> None:
    assert "--reason" in terminal.wrong("override", "approve", "o-1")
    terminal.json("recovery", "veto", "east")
    assert calls[0][2]["reason"] == "durable recovery veto"


def test_every_option_of_a_message_has_a_description() -> None:
    """What has none is no option: so nothing that a person must give may lack it."""
    for message in REGISTRY:
        if message.sender is not Sender.PERSON or message.name in ("apply", "propose"):
            continue
        options = verbs.payload_options(message.payload)
        required = {
            name
            for name, field in message.payload.model_fields.items()
            if field.is_required() and name not in ("actor", "reason", "request_id")
        }
        assert required <= set(options), f"{message.to} {message.name}"
