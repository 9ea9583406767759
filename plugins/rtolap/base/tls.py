"""TLS of clients: the authorities that they trust, read once and checked before anything is called."""

from __future__ import annotations

import functools
import ssl
from pathlib import Path

from rtolap.base.errors import DefinitionError


def trust(ca: Path | None) -> ssl.SSLContext:
    """Return the TLS context of a client, with the authorities that it trusts. `ca`: PEM of authorities;
    None: the system's, one context for all clients of a process. Raises DefinitionError.
    """
    if ca is None:
        return _system_authorities()
    try:
        return ssl.create_default_context(cafile=ca)
    except OSError as error:
        raise DefinitionError(
            "the file of trusted certificates cannot be used", expected=f"PEM in {ca}", found=str(error)
        ) from error


@functools.cache
def _system_authorities() -> ssl.SSLContext:
    """Read once: to parse some 150 certificates takes tens of milliseconds."""
    return ssl.create_default_context()
