"""TLS of endpoints: certificate and key, read once and checked before anything listens."""

from __future__ import annotations

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


def _no_password() -> str:
    """Raise ValueError instead of asking for a password on the terminal."""
    raise ValueError("the key needs a password")
