"""Commands that cannot reach what they need say so in one sentence."""

import pytest

from .terminal import Terminal


def test_an_unreachable_database_is_one_sentence(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DURABLE_DATABASE_URL", "postgresql://a:sesame@127.0.0.1:1/nowhere")
    for command in (["migrate"], ["fleet", "show"], ["doctor"], ["audit", "verify"]):
        assert terminal.run(*command) == 1
        assert terminal.stderr.count("\n") == 1, terminal.stderr
        assert "sesame" not in terminal.stderr


def test_without_a_stack_or_a_database_it_says_what_to_do(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DURABLE_DATABASE_URL")
    assert terminal.run("fleet", "show") == 1
    assert "durable up" in terminal.stderr


def test_an_empty_state_dir_is_not_the_current_directory(terminal: Terminal) -> None:
    assert terminal.run("status", "--state-dir", "") == 2
    assert "empty" in terminal.stderr
