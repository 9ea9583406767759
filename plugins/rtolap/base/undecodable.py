"""The errors that msgspec raises for unexpected bytes: its own, and those of deep nesting."""

from __future__ import annotations

import msgspec

UNDECODABLE: tuple[type[Exception], ...] = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
