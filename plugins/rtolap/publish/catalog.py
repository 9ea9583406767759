"""The Iceberg catalog that a publication declares, and its errors as ours.

Secrets come from files of the operator, are handed to the client library, and appear in no message: messages
of servers are cut before they could repeat a request.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import requests
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.rest.auth import AuthManager
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    BadRequestError,
    CommitFailedException,
    CommitStateUnknownException,
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchTableError,
    OAuthError,
    RESTError,
    UnauthorizedError,
    ValidationError,
    ValidationException,
)
from requests.adapters import HTTPAdapter
from sqlalchemy import URL
from sqlalchemy.exc import DBAPIError, OperationalError

from rtolap.base.errors import (
    CommitConflict,
    CommitUnknown,
    DefinitionError,
    NotFound,
    Refused,
    RtolapError,
    Unauthorized,
    Unavailable,
)
from rtolap.base.operator_files import check_private, check_readable, read_secret
from rtolap.model.publication import IcebergCatalog

TIMEOUT_S = 30.0
_CONNECT_TIMEOUT_S = 10
_TEXT_CHARS = 300
# The library has no code for what a server says while it logs somebody in: its words are all there is.
_LOGIN_REFUSED = re.compile("authentication failed|no password supplied|role .* does not exist", re.I)
_DISK_FULL = re.compile(r"disk is full|no space left", re.IGNORECASE)


class _Bounded(HTTPAdapter):
    """Gives each request a time limit: the client library sets none, and a server may never answer."""

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:  # type: ignore[override]
        options["timeout"] = options.get("timeout") or TIMEOUT_S
        return super().send(request, **options)


class _BoundedRestCatalog(RestCatalog):
    def _create_legacy_oauth2_auth_manager(self, session: requests.Session) -> AuthManager:
        """Bound the session before its first request, which asks for a token."""
        for scheme in ("http://", "https://"):
            session.mount(scheme, _Bounded())
        return super()._create_legacy_oauth2_auth_manager(session)


def open_catalog(declared: IcebergCatalog) -> Catalog:
    """Connect to the catalog; tables of a new SQL catalog are made.

    Raises DefinitionError where a secret or a file of certificates cannot be read, and as `named`.
    """
    with named(declared):
        if declared.kind == "rest":
            return _BoundedRestCatalog(declared.name, **_rest_properties(declared))
        return SqlCatalog(declared.name, **_sql_properties(declared))


def close_catalog(catalog: Catalog) -> None:
    if isinstance(catalog, SqlCatalog):
        catalog.engine.dispose()
    catalog.close()


def storage_properties(warehouse: str) -> dict[str, str]:
    """Return what the library needs to know of an S3 address, as RTOLAP_OBJECT_STORE has it."""
    settings = {name: values[0] for name, values in parse_qs(urlsplit(warehouse).query).items()}
    names = {"endpoint_override": "s3.endpoint", "region": "s3.region"}
    return {names[name]: value for name, value in settings.items() if name in names}


def _sql_properties(declared: IcebergCatalog) -> dict[str, str]:
    return {
        "uri": _sql_url(declared).render_as_string(hide_password=False),
        "warehouse": declared.warehouse.partition("?")[0],
        "pool_pre_ping": "true",
        **storage_properties(declared.warehouse),
    }


def _sql_url(declared: IcebergCatalog) -> URL:
    if declared.kind == "sqlite":
        return URL.create("sqlite", database=declared.address)
    address, _, database = declared.address.rpartition("/")
    host, _, port = address.rpartition(":")
    query = {"connect_timeout": str(_CONNECT_TIMEOUT_S)}
    query |= _postgres_tls(declared)
    return URL.create(
        "postgresql+psycopg",
        username=declared.user,
        password=_secret(declared.password_file, f"the password of {declared.user}"),
        host=host.strip("[]"),
        port=int(port),
        database=database,
        query=query,
    )


def _postgres_tls(declared: IcebergCatalog) -> dict[str, str]:
    """Return libpq's parameters. It would fall back to a default of its own for a file that is missing, or
    name it only once a server has answered."""
    if declared.tls == "none":
        return {"sslmode": "disable"}
    options = {"sslmode": "verify-full" if declared.tls == "verify" else "verify-ca"}
    options["sslrootcert"] = _ca_file(declared) or "system"
    if (client := _client_files(declared)) is not None:
        options["sslcert"], options["sslkey"] = client
    return options


def _ca_file(declared: IcebergCatalog) -> str | None:
    if declared.ca_file is not None:
        check_readable(Path(declared.ca_file), f"`catalog.ca_file` of {declared.address}")
    return declared.ca_file


def _client_files(declared: IcebergCatalog) -> tuple[str, str] | None:
    """Return the files of the client's certificate and its key; None where none is declared."""
    if declared.cert_file is None or declared.key_file is None:
        return None
    check_readable(Path(declared.cert_file), f"`catalog.cert_file` of {declared.address}")
    check_private(Path(declared.key_file), f"`catalog.key_file` of {declared.address}")
    return declared.cert_file, declared.key_file


def _rest_properties(declared: IcebergCatalog) -> dict[str, Any]:
    properties: dict[str, Any] = {"uri": declared.address}
    if declared.warehouse:
        properties["warehouse"] = declared.warehouse
    if declared.password_file is not None:
        secret = _secret(declared.password_file, f"the secret of client {declared.user}")
        properties["credential"] = f"{declared.user}:{secret}"
    if declared.token_file is not None:
        properties["token"] = _secret(declared.token_file, "the token of the Iceberg catalog")
    tls: dict[str, Any] = {}
    if (ca_file := _ca_file(declared)) is not None:
        tls["cabundle"] = ca_file
    if (client := _client_files(declared)) is not None:
        tls["client"] = dict(zip(("cert", "key"), client, strict=True))
    if tls:
        properties["ssl"] = tls
    return properties


def _secret(path: str | None, what: str) -> str | None:
    return None if path is None else read_secret(Path(path), what)


@contextmanager
def named(declared: IcebergCatalog) -> Iterator[None]:
    """Turn what the client library raises into our errors.

    CommitConflict: another commit was first, nothing was done. CommitUnknown: read back. Unavailable: try
    again later, also for a full disk. Unauthorized, Refused, NotFound: as they say.
    """
    where = f"the Iceberg catalog {declared.address}"
    try:
        yield
    except RtolapError:
        raise
    except (CommitFailedException, ValidationException) as error:
        raise CommitConflict(f"a commit to {where} came second", found=_text(error)) from error
    except CommitStateUnknownException as error:
        raise CommitUnknown(f"{where} did not say whether it committed", found=_text(error)) from error
    except (UnauthorizedError, ForbiddenError, OAuthError, AuthorizationExpiredError) as error:
        raise _unauthorized(where, error) from error
    except (NoSuchTableError, NoSuchNamespaceError) as error:
        raise NotFound(f"{where} has no such table", found=_text(error)) from error
    except BadRequestError as error:
        raise Refused(f"{where} refuses the request", found=_text(error)) from error
    except (RESTError, requests.RequestException) as error:
        raise _unavailable(where, error) from error
    except DBAPIError as error:
        raise _database_error(where, error) from error
    except FileNotFoundError as error:
        raise CommitConflict(
            f"a metadata file of a table in {where} is gone",
            expected="the files that the table named when it was read",
            found=_text(error),
            action="another publisher has replaced them, or somebody has deleted them: look again",
        ) from error
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise _disk_full(where, error) from error
        raise Unavailable(
            f"metadata of a table in {where} is not reached",
            found=_text(error),
            action="check that the warehouse is reachable and writable",
        ) from error
    except (ValidationError, ValueError, TypeError, KeyError, NotImplementedError) as error:
        # The library's word for an answer, a metadata file or a format version that it does not read.
        raise Refused(
            f"{where} has a table or an answer that this version does not read",
            found=f"{type(error).__name__}: {_text(error)}",
            action="a table that another program has changed: `rtolap publish reset` makes it anew",
        ) from error


def _database_error(where: str, error: DBAPIError) -> RtolapError:
    text = _text(error.orig or error)
    if _LOGIN_REFUSED.search(text):
        return _unauthorized(where, error.orig or error)
    if _DISK_FULL.search(text):
        return _disk_full(where, error.orig or error)
    if isinstance(error, OperationalError):
        return _unavailable(where, error.orig or error)
    return DefinitionError(f"{where} is no catalog that can be used", found=text)


def _unauthorized(where: str, error: BaseException) -> Unauthorized:
    return Unauthorized(
        f"{where} refuses the credentials", found=_text(error), action="mend the file that is declared"
    )


def _unavailable(where: str, error: BaseException) -> Unavailable:
    return Unavailable(f"{where} does not answer", found=_text(error), action="it is tried again")


def _disk_full(where: str, error: BaseException) -> Unavailable:
    return Unavailable(
        f"there is no space for metadata of {where}",
        found=_text(error),
        action="free some",
    )


def _text(error: BaseException) -> str:
    """Return the first line of the message, without a query or a user in an address."""
    line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return re.sub(r"//[^/@\s]*@", "//", line)[:_TEXT_CHARS]
