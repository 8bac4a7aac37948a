"""Connections that keep their place for nothing are closed, and no others."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from typing import Any

import uvicorn

from app.page.upkeep import LEAST_BYTES, Connections
from tests.helpers.staged import in_loop

ANSWER = b"x" * 8_000_000  # as large as the last frame of the longest race, and more than a socket takes at once


async def answers(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": ANSWER})


@asynccontextmanager
async def serving() -> Any:
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(answers, lifespan="off", log_level="critical", timeout_graceful_shutdown=1))
    serves = asyncio.create_task(server.serve([listening]))
    while not server.started:
        await asyncio.sleep(0.01)
    yield server, listening.getsockname()
    server.should_exit = True
    await serves


@in_loop
async def test_who_neither_asks_nor_reads_is_let_go() -> None:
    """A few dozen clients that never read would keep a gigabyte of answers for ever, and a few thousand that never ask
    all file descriptors. A slow network must not be taken for them."""
    async with serving() as (server, address):

        async def opened(request: bytes) -> socket.socket:
            client = socket.socket()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.setblocking(False)
            await loop.sock_connect(client, address)
            await loop.sock_sendall(client, request)
            return client

        loop, get = asyncio.get_running_loop(), b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
        idle, begun, deaf, slow = [await opened(request) for request in (b"", get[:9], get, get)]
        while len(server.server_state.connections) < 4 or not server.server_state.total_requests:
            await asyncio.sleep(0.01)
        connections = Connections()
        assert connections.check(server) == 0
        num = 0
        while num < 2 * LEAST_BYTES:
            num += len(await loop.sock_recv(slow, 4096))
        assert connections.check(server) == 3
        await asyncio.sleep(0.05)
        assert len(server.server_state.connections) == 1
        for client in (idle, begun, deaf, slow):
            client.close()
