"""TLS of both SQL servers: one certificate, read once, checked before anything listens."""

from __future__ import annotations

import ssl

from rtolap.base.errors import DefinitionError
from rtolap.base.settings import Settings
from rtolap.base.tls import load_context


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
