"""TLS of both SQL doors: one certificate, read once, checked before anything listens."""

from __future__ import annotations

import ssl
from pathlib import Path

from rtolap.base.errors import DefinitionError
from rtolap.base.settings import Settings


def server_context(settings: Settings) -> ssl.SSLContext | None:
    """None without a certificate. Raises DefinitionError for files that cannot be used together."""
    certificate, key = settings.query_tls_certificate, settings.query_tls_key
    if certificate is None and key is None:
        if settings.query_require_tls:
            raise DefinitionError(
                "TLS is required, but there is no certificate",
                action="set RTOLAP_QUERY_TLS_CERTIFICATE and RTOLAP_QUERY_TLS_KEY",
            )
        return None
    if certificate is None or key is None:
        missing = "RTOLAP_QUERY_TLS_KEY" if key is None else "RTOLAP_QUERY_TLS_CERTIFICATE"
        raise DefinitionError("TLS needs a certificate and its key", action=f"set {missing}")
    return load_context(certificate, key)


def load_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """For a server, TLS 1.2 or newer. Raises DefinitionError naming the files, never their content."""
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
    """Instead of asking on the terminal."""
    raise ValueError("the key needs a password")
