"""Connection limits that let threads share an HTTP client.

httpx keeps 20 idle connections by default, each for 5 seconds. The code that closes the others (httpcore 1.0)
may close a connection that another thread was just given, so that thread meets "bad file descriptor". Without
these limits a connection is closed by its server only, and there are at most as many as threads.
"""

from __future__ import annotations

from typing import Final

import httpx

SHARED_BY_THREADS: Final = httpx.Limits(
    max_connections=None, max_keepalive_connections=None, keepalive_expiry=None
)
