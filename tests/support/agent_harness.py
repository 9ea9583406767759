"""A real agent on a free loopback port, in a thread of the test's own process."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec
from rtolap.agent.commands import Commands, Resolver
from rtolap.agent.host import Host
from rtolap.agent.server import create_app
from rtolap.agent.supervisor import Supervisor
from rtolap.base.clock import Clock
from rtolap.protocols.agent.client import AgentClient
from rtolap.servers.http_server import HttpConnections, HttpServer
from rtolap.servers.limits import HttpLimits

from tests.support.waiting import patience_s

START_DEADLINE_S = 15.0
TICK_S = 0.05


class RunningAgent(msgspec.Struct, frozen=True):
    url: str
    token: str
    folder: Path

    def client(self) -> AgentClient:
        return AgentClient(self.url, self.token)


def shell(arguments: object) -> tuple[str, ...]:
    """Resolve commands for tests: `("sh", script, …)` runs a shell script. It is never on a real agent's
    allow-list."""
    assert isinstance(arguments, (list, tuple))
    return ("/bin/sh", "-c", *arguments)


@contextmanager
def running_agent(
    folder: Path,
    *,
    token: str = "test-token",
    jobs_dir: Path | None = None,
    object_store: str = "file:///nowhere",
    spark_master: str = "local[2]",
    extra: Mapping[str, Resolver] | None = None,
    clock: Clock | None = None,
) -> Iterator[RunningAgent]:
    """Serve until the block ends; then stop every process that was started."""
    host = Host(jobs_dir or folder, folder, object_store, spark_master)
    commands = Commands(host, {"sh": shell, **(extra or {})})
    supervisor = Supervisor(folder, commands, clock, tick_s=TICK_S)
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    server: HttpServer

    def shutdown() -> None:
        server.should_exit = True

    app = create_app(supervisor, token, shutdown, HttpLimits())
    server = HttpServer(app, HttpConnections(supervisor.metrics.registry, HttpLimits()), graceful_s=2)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    deadline_s = time.monotonic() + patience_s(START_DEADLINE_S)
    while not server.started:
        if time.monotonic() > deadline_s or not thread.is_alive():
            raise TimeoutError(f"the agent did not start within {START_DEADLINE_S} s")
        time.sleep(0.01)
    agent = RunningAgent(f"http://127.0.0.1:{listener.getsockname()[1]}", token, folder)
    try:
        yield agent
    finally:
        if thread.is_alive() and not server.should_exit:
            with agent.client() as client:
                client.shutdown(stop_processes=True)
        thread.join(START_DEADLINE_S)
        supervisor.close()
        listener.close()
