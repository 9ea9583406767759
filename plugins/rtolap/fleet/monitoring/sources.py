"""Sources that monitoring reads: what the operator declares in a file, `RTOLAP_FLEET_SOURCES` or `--sources`.

    brokers:
      1: {jolokia: "https://kafka1:8778/jolokia", logs: [/var/log/kafka/server.log]}
      2: {prometheus: "http://kafka2:7071/metrics"}
    access:
      user: monitor
      password: {file: /etc/rtolap/jolokia.password}
      ca: /etc/rtolap/kafka-ca.pem
    clients: ["http://127.0.0.1:7081/metrics"]

`access` holds for all brokers, a broker's own `access` in its place. `user` and `password`, or `token`, which
is a file too; `certificate` and `key` where an agent asks for a client's. Secrets stand in files that their
owner alone may read; they are never part of a URL, and nothing here shows them.
"""

from __future__ import annotations

import ssl
from pathlib import Path

import httpx
import msgspec

from rtolap.base.decoding import convert
from rtolap.base.errors import DefinitionError
from rtolap.base.operator_files import check_private, read_operator_yaml, read_secret
from rtolap.base.tls import trust


class SecretFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    file: Path


class Access(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Credentials for a source, and the authority that it is checked against.

    Attributes:
        ca: PEM file of trusted authorities. None: those of the system.
    """

    user: str = ""
    password: SecretFile | None = None
    token: SecretFile | None = None
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None


class BrokerSources(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Sources of one broker.

    Attributes:
        jolokia: URL of the agent, which is preferred where both are given.
        prometheus: URL of the exporter.
    """

    jolokia: str = ""
    prometheus: str = ""
    access: Access | None = None
    logs: tuple[Path, ...] = ()

    @property
    def url(self) -> str:
        return self.jolokia or self.prometheus


class FleetSources(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Sources of a fleet.

    Attributes:
        brokers: By id.
        clients: Pages of rtolap's own processes, which accept the cluster's token.
    """

    brokers: dict[int, BrokerSources] = {}
    access: Access = Access()
    clients: tuple[str, ...] = ()

    def access_of(self, broker: int) -> Access:
        return self.brokers[broker].access or self.access


def read_sources(path: Path) -> FleetSources:
    """Read the sources. Raises DefinitionError for a file that is none, that others may write to, or that
    holds a secret."""
    parsed = read_operator_yaml(path, "the sources of monitoring")
    try:
        sources = convert(parsed, FleetSources, strict=False, dec_hook=_path)
    except msgspec.ValidationError as error:
        raise DefinitionError(f"{path} declares no sources of monitoring", found=error) from None
    for broker, declared in sources.brokers.items():
        if not declared.url and not declared.logs:
            raise DefinitionError(
                f"{path}: broker {broker} has no source", expected="jolokia, prometheus or logs"
            )
        for url in (declared.jolokia, declared.prometheus):
            check_url(f"{path}: broker {broker}", url)
    for url in sources.clients:
        check_url(f"{path}: clients", url)
    return sources


def _path(kind: type, value: object) -> object:
    if kind is Path and isinstance(value, str):
        return Path(value)
    raise NotImplementedError


def check_url(where: str, url: str) -> None:
    """Raise DefinitionError for a URL that cannot be used, without repeating what may be a password."""
    if not url:
        return
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        raise DefinitionError(f"{where}: this is no URL") from None
    if parsed.userinfo:
        raise DefinitionError(
            f"{where}: a URL holds a password", action="say user and password in access, in a file of its own"
        )
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise DefinitionError(f"{where}: this is no URL", expected="http://… or https://…", found=url)


def open_http(access: Access, of: str, timeout_s: float) -> httpx.Client:
    """Return a client that sends the secrets nowhere else: it follows no redirect, and no proxy or netrc of
    the environment. Raises DefinitionError for files that cannot be used; `of` names what they are for.
    """
    context = trust(access.ca)
    if access.certificate is not None:
        if access.ca is None:
            context = ssl.create_default_context()  # not the one that others share
        key = access.key or access.certificate
        check_private(key, f"the key of {of}")
        try:
            context.load_cert_chain(access.certificate, key)
        except (OSError, ValueError) as error:
            raise DefinitionError(
                f"the certificate of {of} cannot be used",
                expected=f"PEM in {access.certificate}",
                found=str(error),
            ) from error
    auth = None
    headers = {}
    if access.password is not None:
        auth = httpx.BasicAuth(access.user, read_secret(access.password.file, f"the password of {of}"))
    elif access.token is not None:
        headers["Authorization"] = f"Bearer {read_secret(access.token.file, f'the token of {of}')}"
    return httpx.Client(verify=context, auth=auth, headers=headers, timeout=timeout_s, trust_env=False)
