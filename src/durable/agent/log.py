"""The agent's log: one line per event on stderr, as text for people or JSON for programs."""

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import TextIO

Log = Callable[..., None]


class EventLog:
    """Writes what happened and to what, as `moment event key=value ...` or as a JSON object."""

    def __init__(self, *, as_json: bool = False, stream: TextIO | None = None) -> None:
        self._as_json = as_json
        self._stream = sys.stderr if stream is None else stream

    def __call__(self, event: str, **fields: object) -> None:
        moment = datetime.now(UTC).isoformat(timespec="milliseconds")
        if self._as_json:
            line = json.dumps({"at": moment, "event": event, **fields}, default=str)
        else:
            words = (f"{name}={_word(value)}" for name, value in fields.items())
            line = " ".join([moment, event, *words])
        # Whoever read the log may be gone, but the replicas are not.
        with suppress(OSError):
            self._stream.write(line + "\n")
            self._stream.flush()


def _word(value: object) -> str:
    text = str(value)
    return text if text.isprintable() and " " not in text and text else json.dumps(text)


class FailureLog:
    """Logs a lasting failure once, and its recovery once, however often it is met."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._failures: dict[str, str] = {}

    def failed(self, doing: str, error: BaseException) -> None:
        sentence = str(error) or type(error).__name__
        if self._failures.get(doing) != sentence:
            self._failures[doing] = sentence
            self._log("error", doing=doing, reason=sentence)

    def recovered(self, doing: str) -> None:
        if self._failures.pop(doing, None) is not None:
            self._log("recovered", doing=doing)
