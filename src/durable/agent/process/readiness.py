"""Whether a replica is ready: probed by connecting, by HTTP, or by a command, again and again."""

import asyncio
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from durable.agent.driver import ReplicaReport
from durable.model.states import ObservedState
from durable.model.work.running import AUTO, CommandProbe, HttpProbe, Port, ReadinessProbe, TcpProbe

HOST = "127.0.0.1"
MAX_STATUS_LINE_BYTES = 8_192
FIRST_PAUSE_SECONDS = 0.1


class Prober:
    """One replica's readiness, one probe at a time."""

    def __init__(
        self,
        readiness: ReadinessProbe,
        *,
        port: int | None,
        environment: Mapping[str, str],
        directory: Path,
    ) -> None:
        self._readiness = readiness
        self._port = port
        self._environment = environment
        self._directory = directory

    async def probe(self) -> str | None:
        """None if it is ready, else why not."""
        timeout = self._readiness.timeout.total_seconds()
        try:
            async with asyncio.timeout(timeout):
                return await self._probe()
        except TimeoutError:
            return f"the readiness probe took longer than {timeout:.0f} s"
        except OSError as error:
            return f"the readiness probe failed: {error.strerror or error}"

    async def _probe(self) -> str | None:
        readiness = self._readiness
        if readiness.tcp is not None:
            return await self._connect(readiness.tcp)
        if readiness.http is not None:
            return await self._get(readiness.http)
        assert readiness.command is not None, "the model allows exactly one kind of probe"
        return await self._run(readiness.command)

    def _number(self, port: Port) -> int:
        if port != AUTO:
            return port
        assert self._port is not None, "a free port was chosen before the start"
        return self._port

    async def _connect(self, probe: TcpProbe) -> str | None:
        _, writer = await asyncio.open_connection(HOST, self._number(probe.port))
        writer.close()
        return None

    async def _get(self, probe: HttpProbe) -> str | None:
        port = self._number(probe.port)
        reader, writer = await asyncio.open_connection(HOST, port, limit=MAX_STATUS_LINE_BYTES)
        try:
            request = (
                f"GET {probe.path} HTTP/1.1\r\nHost: {HOST}:{port}\r\nConnection: close\r\n\r\n"
            )
            writer.write(request.encode())
            await writer.drain()
            status = await reader.readline()
        except ValueError:
            return "the readiness probe was answered with too long a line"
        finally:
            writer.close()
        words = status.split()
        code = words[1] if len(words) > 1 and words[0].startswith(b"HTTP/") else b""
        if len(code) == 3 and code.isdigit() and code[:1] in (b"2", b"3"):
            return None
        answer = f"{code.decode()}" if code.isdigit() else "something that is not HTTP"
        return f"GET {probe.path} answered {answer}"

    async def _run(self, probe: CommandProbe) -> str | None:
        child = await asyncio.create_subprocess_exec(
            *probe.command,
            cwd=self._directory,
            env=self._environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            code = await child.wait()
        except asyncio.CancelledError:
            # It took too long, or the replica ends: it is killed with everything that it started.
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            raise
        return None if code == 0 else f"the readiness command ended with exit code {code}"


def report_serving(report: ReplicaReport, token: int, evidence: str) -> None:
    """Reports both at once: on a node, nothing comes between ready and serving."""
    report(token, ObservedState.READY, evidence)
    report(token, ObservedState.SERVING, evidence)


async def keep_probing(
    prober: Prober, readiness: ReadinessProbe, token: int, report: ReplicaReport, *, is_new: bool
) -> None:
    """Probes until cancelled, and reports every change.

    Of an adopted replica nothing is reported before its first answer, because a guess might
    overwrite what it was. A new one has been reported as running.
    """
    state = ObservedState.RUNNING if is_new else None
    period_seconds = readiness.period.total_seconds()
    # Until it is ready for the first time it is probed more often, with growing pauses.
    pause_seconds = min(FIRST_PAUSE_SECONDS, period_seconds)
    while True:
        reason = await prober.probe()
        if reason is None and state is not ObservedState.SERVING:
            report_serving(report, token, "its readiness probe succeeded")
            state = ObservedState.SERVING
        elif reason is not None and state is not ObservedState.RUNNING:
            report(token, ObservedState.RUNNING, reason)
            state = ObservedState.RUNNING
        pause_seconds = period_seconds if reason is None else min(pause_seconds * 2, period_seconds)
        await asyncio.sleep(pause_seconds)
