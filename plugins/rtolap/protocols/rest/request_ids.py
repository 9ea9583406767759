"""The id of a request that changes something: one for all the times that it is sent.

An answer can be lost. Its client sends the change again, to the same service or to its successor, under the
id of the first time; the service has kept the answer with the change, and gives it again.

It travels as `Idempotency-Key`. Proxies write an `X-Request-Id` of their own into each request that passes,
so that one would differ just where it has to be the same.
"""

from __future__ import annotations

import re
import uuid

from rtolap.base.errors import DefinitionError

HEADER = "Idempotency-Key"
CHARS_MIN, CHARS_MAX = 16, 64  # long enough that nobody takes one twice by accident
_ID = re.compile(rf"[-_.:A-Za-z0-9]{{{CHARS_MIN},{CHARS_MAX}}}")


def new_request_id() -> str:
    return uuid.uuid4().hex


def checked_request_id(value: str | None) -> str | None:
    """Return the id that a request gives itself; None where it gives none: each time it comes is a change of
    its own. Raises DefinitionError.
    """
    if value is None or _ID.fullmatch(value):
        return value
    raise DefinitionError(
        f"the {HEADER} of the request cannot be kept",
        expected=f"{CHARS_MIN} to {CHARS_MAX} characters, letters, digits or any of -_.: such as a UUID",
        found=repr(value[: CHARS_MAX + 10]),
    )
