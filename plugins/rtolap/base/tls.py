"""TLS of endpoints and of their clients: files read once, and checked before anything listens or calls."""

from __future__ import annotations

import functools
import ssl
from pathlib import Path

from rtolap.base.errors import DefinitionError


def load_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return the context of a server, TLS 1.2 or newer. Raises DefinitionError naming the files, never their
    content."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except (OSError, ValueError) as error:
        raise DefinitionError(
            "the TLS certificate cannot be used",
            expected=f"a PEM chain in {certificate} and its key, without a password, in {key}",
            found=str(error),
        ) from error
    return context


def trust(ca: Path | None) -> ssl.SSLContext:
    """Return the context of a client: whom it trusts. `ca`: PEM of authorities; None: the system's, one
    context for all clients of a process. Raises DefinitionError.
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


def _no_password() -> str:
    """Raise ValueError instead of asking for a password on the terminal."""
    raise ValueError("the key needs a password")
