"""Runs an agent: binds, serves, and ends on SIGTERM or on a shutdown request."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import uvicorn

from rtolap.agent.commands import Commands
from rtolap.agent.service import create_app
from rtolap.agent.supervisor import Supervisor

log = logging.getLogger(__name__)


async def serve(
    *, folder: Path, commands: Commands, host: str, port: int, token: str, stop_on_exit: bool = False
) -> None:
    """Serve until asked to end. With `stop_on_exit` the processes end with the agent; else they live on.

    Raises Refused when another agent holds the folder.
    """
    supervisor = Supervisor(folder, commands)
    try:
        server: uvicorn.Server

        def shutdown() -> None:
            server.should_exit = True

        app = create_app(supervisor, token, shutdown)
        server = uvicorn.Server(
            uvicorn.Config(
                app, host=host, port=port, log_level="warning", access_log=False, timeout_graceful_shutdown=5
            )
        )
        await server.serve()
        if stop_on_exit:
            log.info("stopping all processes")
            await supervisor.stop_all()
    finally:
        supervisor.close()


def run(
    *, folder: Path, commands: Commands, host: str, port: int, token: str, stop_on_exit: bool = False
) -> None:
    asyncio.run(
        serve(folder=folder, commands=commands, host=host, port=port, token=token, stop_on_exit=stop_on_exit)
    )
