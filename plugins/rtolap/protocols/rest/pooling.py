"""How threads share the connections of one HTTP client.

httpx keeps 20 idle connections by default, and what closes the others (httpcore 1.0) takes one for idle that
another thread was just given: of more than 20 threads, one may meet "bad file descriptor". Without that limit
none is closed but by its server or its age, and there are as many as threads.
"""

from __future__ import annotations

from typing import Final

import httpx

SHARED_BY_THREADS: Final = httpx.Limits(max_connections=None, max_keepalive_connections=None)
