"""Keys that are derived from the cluster's token, one for each purpose.

Nobody who learns a derived key, or anything that was made with it, learns the token or another purpose's
key from it. A token that can be guessed can be found by trying, so it has to be random.
"""

from __future__ import annotations

import hashlib
import hmac

BACKUP = "backups of metadata"
FLIGHT = "flight sessions"
RECORDS = "records in zookeeper"
SPARK = "large reads on spark"
ZOOKEEPER = "zookeeper password"


def derived_key(token: str, purpose: str) -> bytes:
    """Return 32 bytes that depend on the token and the purpose alone."""
    return hmac.new(token.encode(), b"rtolap 1 " + purpose.encode(), hashlib.sha256).digest()


def tag(key: bytes, *parts: bytes) -> bytes:
    """Return 32 bytes that prove knowledge of `key`, over `parts`: their borders count."""
    counted = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    return hmac.digest(key, counted, "sha256")


def proves(key: bytes, given: bytes, *parts: bytes) -> bool:
    """Return whether `given` is the tag of `parts`; takes equally long for every wrong one."""
    return hmac.compare_digest(given, tag(key, *parts))
