"""The errors of the tree out of what a server has answered with."""

from __future__ import annotations

from typing import Any

import httpx
import msgspec

from rtolap.base.decoding import decode_json
from rtolap.base.errors import RtolapError, from_dict


def unreadable(response: httpx.Response, error: Exception, server: str) -> RtolapError:
    """Return the error for an answer of a `server` that talks otherwise than this client."""
    return RtolapError(
        f"{response.request.method} {response.request.url} gave an answer this client cannot read",
        found=str(error),
        action=f"run client and {server} in the same version",
    )


def named_error(response: httpx.Response) -> RtolapError | None:
    """Return the error that the server names; None where it names none."""
    try:
        payload = decode_json(response.content, dict[str, Any])
    except msgspec.MsgspecError:
        return None
    return from_dict(payload) if "code" in payload else None


def error_of(response: httpx.Response) -> RtolapError:
    """Return the error that the server names, or one with its status and the beginning of its text."""
    text = f"HTTP {response.status_code}: {response.text[:500]}"
    return named_error(response) or from_dict({"code": "error", "message": text})
