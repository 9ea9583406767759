"""The endpoint of a loader's process: its socket, which names the process, and its server."""

from __future__ import annotations

import os
import socket
import threading
import uuid

from rtolap.servers.http_server import HttpConnections, HttpServer


def owner_of(address: str) -> str:
    """Return the name of this process as an owner: its address, and what no other process ever has."""
    return f"{address}/{os.getpid()}-{uuid.uuid4().hex[:8]}"


def address_of(owner: str) -> str:
    """Return the address of an owner's endpoint."""
    return owner.partition("/")[0]


def bound(host: str, port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind((host, port))
    return listening


def served(app: object, connections: HttpConnections, listening: socket.socket) -> HttpServer:
    server = HttpServer(app, connections)
    threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name="endpoint", daemon=True).start()
    return server
