"""What msgspec raises for bytes that are not what was expected: its own errors, and those of deep nesting."""

from __future__ import annotations

import msgspec

UNDECODABLE: tuple[type[Exception], ...] = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
