"""A TCP proxy in front of PostgreSQL that can lose a COMMIT on its way, or the answer to it."""

import asyncio
from enum import Enum
from types import TracebackType

from sqlalchemy import make_url


class Loses(Enum):
    NOTHING = "nothing"
    THE_COMMIT = "the commit"  # the server never hears of it and rolls back
    THE_ANSWER = "the answer"  # the server commits, and its answer is lost
    THE_WAY = "the way"  # nothing arrives any more, in silence


class LossyProxy:
    """Forwards everything; `loses` arms it for the next COMMIT, once."""

    def __init__(self, url: str) -> None:
        self._target = make_url(url)
        self.loses = Loses.NOTHING
        self.lost = 0
        self._port = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "LossyProxy":
        await self.accept()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        await self.refuse()

    async def refuse(self) -> None:
        """Cuts every connection and takes no new one, as a server that is not there."""
        assert self._server is not None
        self._server.close()
        cut = list(self._tasks)
        for task in cut:
            task.cancel()
        await asyncio.gather(*cut, return_exceptions=True)

    async def accept(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    @property
    def url(self) -> str:
        return self._target.set(port=self._port).render_as_string(hide_password=False)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            upstream = await asyncio.open_connection(self._target.host, self._target.port)
            answers = asyncio.create_task(self._pump(upstream[0], writer))
            try:
                await self._requests(reader, upstream, answers)
            finally:
                answers.cancel()
                await asyncio.gather(answers, return_exceptions=True)
                upstream[1].close()
        finally:
            writer.close()
            self._tasks.discard(task)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def _requests(
        self,
        reader: asyncio.StreamReader,
        upstream: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        answers: "asyncio.Task[None]",
    ) -> None:
        while data := await reader.read(65_536):
            if b"COMMIT" in data and self.loses is not Loses.NOTHING:
                loses, self.loses = self.loses, Loses.NOTHING
                self.lost += 1
                if loses is Loses.THE_ANSWER:
                    answers.cancel()
                    await asyncio.gather(answers, return_exceptions=True)
                    upstream[1].write(data)
                    await upstream[1].drain()
                    await upstream[0].read(65_536)  # it has committed: this is its word for it
                while loses is Loses.THE_WAY and await reader.read(65_536):
                    pass  # swallowed, until the client gives up
                return
            upstream[1].write(data)
            await upstream[1].drain()
