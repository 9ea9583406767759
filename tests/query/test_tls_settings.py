"""A certificate that cannot be used is said before anything listens."""

from __future__ import annotations

from pathlib import Path

import pytest
from rtolap.base.errors import DefinitionError
from rtolap.base.settings import Settings
from rtolap.query.run import server_context

from tests.support.certificates import make_certificates


def test_without_a_certificate_there_is_no_tls() -> None:
    assert server_context(Settings()) is None
    assert Settings().query_url() == "http://127.0.0.1:7090"


def test_a_certificate_and_its_key_make_tls(tmp_path: Path) -> None:
    made = make_certificates(tmp_path)
    settings = Settings(query_tls_certificate=made.certificate, query_tls_key=made.key)
    assert server_context(settings) is not None
    assert settings.query_url() == "https://127.0.0.1:7090"


def test_half_of_it_or_something_else_is_refused_by_name(tmp_path: Path) -> None:
    made, other = make_certificates(tmp_path), make_certificates(tmp_path, "other")
    missing = tmp_path / "missing.pem"
    wrong: list[tuple[dict[str, object], str]] = [
        ({"query_tls_certificate": made.certificate}, "RTOLAP_QUERY_TLS_KEY"),
        ({"query_tls_key": made.key}, "RTOLAP_QUERY_TLS_CERTIFICATE"),
        ({"query_require_tls": True}, "there is no certificate"),
        ({"query_tls_certificate": missing, "query_tls_key": made.key}, "missing.pem"),
        ({"query_tls_certificate": made.certificate, "query_tls_key": other.key}, "other-key.pem"),
    ]
    for values, words in wrong:
        with pytest.raises(DefinitionError, match=words):
            server_context(Settings(**values))  # type: ignore[arg-type]
