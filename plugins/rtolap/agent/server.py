"""Runs an agent: binds, serves, and ends on SIGTERM or on a shutdown request."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Coroutine, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from rtolap.agent.commands import Commands
from rtolap.agent.http import create_app
from rtolap.agent.supervisor import Supervisor
from rtolap.base.http_server import HttpConnections, HttpServer

log = logging.getLogger(__name__)

GRACEFUL_S = 5


async def serve(
    *,
    folder: Path,
    commands: Commands,
    host: str,
    port: int,
    token: str,
    stop_on_exit: bool = False,
    cpus: Mapping[str, frozenset[int]] | None = None,
) -> None:
    """Serve until asked to end. With `stop_on_exit` the processes end with the agent; else they live on.

    On the way out: 1. requests under way are answered (at most `GRACEFUL_S`), 2. the processes are stopped,
    if so wanted, 3. the folder is let go. An agent that is killed instead leaves its processes to the next.

    Raises Refused when another agent holds the folder.
    """
    supervisor = Supervisor(folder, commands, cpus=cpus)
    try:
        server: HttpServer

        def shutdown() -> None:
            server.should_exit = True

        app = create_app(supervisor, token, shutdown)
        connections = HttpConnections(supervisor.metrics.registry)
        server = HttpServer(app, connections, host=host, port=port, graceful_s=GRACEFUL_S)
        await server.serve()
        if stop_on_exit:
            log.info("stopping all processes")
            await supervisor.stop_all()
    finally:
        supervisor.close()
        log.info("agent ended")


def run(serving: Coroutine[Any, Any, None]) -> None:
    """`serve` as a process: call from the main thread."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _served)
    asyncio.run(serving)


def _served(number: int, frame: FrameType | None) -> None:
    """uvicorn handles signals while it serves and raises them once more afterwards: by then we are ending.

    Left at its default, that second SIGTERM would end the agent before it has stopped its processes.
    """
