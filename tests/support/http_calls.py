"""Calls over HTTP as `httpx` has them, by one TLS context: reading the system's authorities takes longer than
most calls of the tests.
"""

from __future__ import annotations

from functools import partial

import httpx
from rtolap.base.tls import trust

get = partial(httpx.get, verify=trust(None))
post = partial(httpx.post, verify=trust(None))
put = partial(httpx.put, verify=trust(None))
request = partial(httpx.request, verify=trust(None))
Client = partial(httpx.Client, verify=trust(None))
