"""The loopback address of services in tests: an IPv6 one where the machine has any.

Their addresses have to be in brackets then. The local stack, and Airflow's tests with it, are on 127.0.0.1.
"""

from __future__ import annotations

import socket


def _loopback() -> str:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return "127.0.0.1"
    return "::1"


LOOPBACK = _loopback()
