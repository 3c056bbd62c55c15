"""Commands as a person types them, in this process, with what they print."""

import json
import logging
from typing import Any

import pytest

from durable.cli.main import execute


class Terminal:
    """Runs commands and keeps what they print."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.stdout = ""
        self.stderr = ""

    def run(self, *arguments: str) -> int:
        self._capsys.readouterr()
        # How a command logs ends with its process.
        handlers = logging.root.handlers[:]
        code = execute(list(arguments))
        logging.root.handlers[:] = handlers
        self.stdout, self.stderr = self._capsys.readouterr()
        return code

    def json(self, *arguments: str) -> Any:
        assert self.run(*arguments, "--json") == 0, self.stderr
        return json.loads(self.stdout)

    def refused(self, *arguments: str) -> str:
        """The sentence of a refusal, which is all that is printed, and on stderr."""
        assert self.run(*arguments) == 1, (self.stdout, self.stderr)
        assert self.stdout == ""
        assert "Traceback" not in self.stderr
        return self.stderr

    def refusal(self, *arguments: str) -> str:
        """The code of a refusal, as programs read it."""
        assert self.run(*arguments, "--json") == 1, (self.stdout, self.stderr)
        return json.loads(self.stdout)["error"]["code"]

    def wrong(self, *arguments: str) -> str:
        """What is message of wrong usage or input."""
        assert self.run(*arguments) == 2, (self.stdout, self.stderr)
        assert "Traceback" not in self.stderr
        return self.stderr
