"""A TCP proxy in front of PostgreSQL whose way can be cut: what is sent then arrives later."""

import asyncio
import socket
from types import TracebackType
from typing import Self

from sqlalchemy import make_url


class CutProxy:
    """Forwards everything while it is whole; while cut it takes everything and says nothing."""

    def __init__(self, url: str, listener: socket.socket | None = None) -> None:
        """Is reached at the address to which the listener is bound; else on this machine."""
        self._target = make_url(url)
        self._listener = listener or socket.create_server(("127.0.0.1", 0))
        self._whole = asyncio.Event()
        self._whole.set()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, sock=self._listener)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        self._whole.clear()

    def mend(self) -> None:
        self._whole.set()

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._tasks)

    @property
    def url(self) -> str:
        host, port = self._listener.getsockname()
        return self._target.set(host=host, port=port).render_as_string(hide_password=False)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._whole.wait()
            upstream = await asyncio.open_connection(self._target.host, self._target.port)
            await asyncio.gather(self._pump(reader, upstream[1]), self._pump(upstream[0], writer))
        except OSError:
            writer.close()
        finally:
            self._tasks.discard(task)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65_536):
                await self._whole.wait()
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()
