"""A receiver of webhooks: answers as it is told, keeps what it got."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, Self

from aiohttp import web


@dataclass
class Receiver:
    """An HTTP server of this machine.

    Attributes:
        answers: (status, headers, body) in turn; the last one for good. None closes the connection without one.
    """

    answers: list[tuple[int, dict[str, str], str] | None] = field(default_factory=lambda: [(204, {}, "")])
    delay: float = 0.0
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    port: int = 0
    _runner: Any = None

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_route("*", "/{any:.*}", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    async def _handle(self, request: web.Request) -> web.Response:
        self.got.append(({name.lower(): value for name, value in request.headers.items()}, await request.read()))
        answer = self.answers[0] if len(self.answers) == 1 else self.answers.pop(0)
        if self.delay:
            await asyncio.sleep(self.delay)
        if answer is None:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        status, headers, body = answer
        return web.Response(status=status, headers=headers, text=body)
