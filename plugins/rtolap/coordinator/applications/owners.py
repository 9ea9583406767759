"""The rule by which applications are spread over coordinators: rendezvous hashing.

The owner of an application is the coordinator whose URL hashes highest together with the application's name.
A coordinator that comes takes applications from all others, about as many from each; one that goes leaves its
applications to all others. No other application moves.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable


def chosen_owner(application: str, urls: Iterable[str]) -> str:
    """Return the URL that should own the application, whatever the order of `urls`, of which there is one."""
    return max(urls, key=lambda url: (_weight(application, url), url))


def _weight(application: str, url: str) -> bytes:
    """`hash` differs from process to process; no name holds a NUL."""
    return hashlib.blake2b(f"{application}\0{url}".encode(), digest_size=16).digest()
