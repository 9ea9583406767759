"""Schema registries by name, and the schemas that they hold, by the ids that records name.

The registry `default` is where `RTOLAP_SCHEMA_REGISTRY` points. A host's operator says more in a file,
`RTOLAP_SCHEMA_REGISTRIES`:

    registries:
      default:
        urls: [https://registry-1:8081, https://registry-2:8081]
        user: rtolap
        password: {file: /etc/rtolap/registry.password}    # or token: {file: ...}
        ca_file: /etc/rtolap/registry-ca.pem

A schema never changes under its id, so it is fetched once. An id that the registry does not have is an
answer, too, and is asked for again after a while. Anything else than these two answers says nothing about the
record: the caller tries again later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote

import cachetools
import httpx
import msgspec

from rtolap.base.addresses import http_url, without_credentials
from rtolap.base.decoding import decode_json
from rtolap.base.errors import DefinitionError, NotFound, Unavailable
from rtolap.base.operator_files import read_operator_yaml
from rtolap.base.settings import Settings
from rtolap.base.tls import trust
from rtolap.kafka.clusters import secret
from rtolap.model.problems import did_you_mean

DEFAULT_REGISTRY = "default"
_TIMEOUT_S = 5.0  # the thread that reads records waits for so long
_SCHEMAS_MAX = 10_000  # of a process and registry; a topic has some ten
_UNKNOWN_MAX, _UNKNOWN_S = 10_000, 30.0
_RETRY_S = 1.0  # until then a failure stands: callers try again at once
_SCHEMA_NOT_FOUND = (40403, 40402, 40401)  # schema, version, subject
_SHOWN_CHARS_MAX = 200


class Reference(msgspec.Struct, frozen=True):
    """Another schema that a schema builds on: the name by which it is imported, and where it is kept."""

    name: str
    subject: str
    version: int


class RegisteredSchema(msgspec.Struct, frozen=True, rename={"kind": "schemaType", "text": "schema"}):
    """A schema as the registry has it. `text`: JSON of an Avro schema; of a Protobuf one its file's
    descriptor in Base64, or the text of the file where the registry gives no descriptors."""

    text: str
    kind: str = "AVRO"
    references: tuple[Reference, ...] = ()


class SchemaSource(Protocol):
    """A registry. NotFound: it has no such schema. Unavailable: it does not answer, or not as a registry
    does."""

    name: str

    def schema(self, schema_id: int) -> RegisteredSchema: ...

    def referenced(self, reference: Reference) -> RegisteredSchema: ...


class _Address(NamedTuple):
    urls: tuple[str, ...]
    user: str | None = None
    password: str | None = None
    token: str | None = None
    ca_file: Path | None = None


class SchemaRegistry:
    """A client of a registry that speaks Confluent's REST. Thread-safe."""

    def __init__(self, name: str, address: _Address) -> None:
        self.name = name
        self._urls = address.urls
        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if address.token is not None:
            headers["Authorization"] = f"Bearer {address.token}"
        auth = None if address.user is None else httpx.BasicAuth(address.user, address.password or "")
        self._client = httpx.Client(
            timeout=_TIMEOUT_S, headers=headers, auth=auth, verify=trust(address.ca_file), trust_env=True
        )
        self._lock = Lock()
        self._known: cachetools.LRUCache[str, RegisteredSchema] = cachetools.LRUCache(_SCHEMAS_MAX)
        self._unknown: cachetools.TTLCache[str, NotFound] = cachetools.TTLCache(_UNKNOWN_MAX, _UNKNOWN_S)
        self._failed: cachetools.TTLCache[str, Unavailable] = cachetools.TTLCache(_UNKNOWN_MAX, _RETRY_S)

    def schema(self, schema_id: int) -> RegisteredSchema:
        return self._at(f"/schemas/ids/{schema_id}", f"schema {schema_id}")

    def referenced(self, reference: Reference) -> RegisteredSchema:
        subject = quote(reference.subject, safe="")
        what = f"version {reference.version} of subject {reference.subject}"
        return self._at(f"/subjects/{subject}/versions/{reference.version}", what)

    def close(self) -> None:
        self._client.close()

    def _at(self, path: str, what: str) -> RegisteredSchema:
        with self._lock:
            if (known := self._known.get(path)) is not None:
                return known
            if (unknown := self._unknown.get(path)) is not None:
                raise NotFound(unknown.message)
            if (failed := self._failed.get(path)) is not None:
                raise _again(failed)
        try:
            found = self._fetched(path, what)
        except NotFound as error:
            with self._lock:
                self._unknown[path] = error
            raise
        except Unavailable as error:
            with self._lock:
                self._failed[path] = error
            raise
        with self._lock:
            self._known[path] = found
        return found

    def _fetched(self, path: str, what: str) -> RegisteredSchema:
        """Ask one server after the other. Of a Protobuf schema its descriptor is asked for."""
        failures = []
        for url in self._urls:
            try:
                found = self._asked(url + path, what)
                if found.kind == "PROTOBUF":
                    found = self._asked(f"{url}{path}?format=serialized", what)
                return found
            except Unavailable as error:
                failures.append(str(error.found))
        raise Unavailable(
            f"schema registry {self.name} does not give {what}",
            expected="its answer",
            found="; ".join(failures),
            action="records that need it wait; it is asked again",
        )

    def _asked(self, url: str, what: str) -> RegisteredSchema:
        try:
            answer = self._client.get(url)
        except httpx.HTTPError as error:
            raise Unavailable("no answer", found=f"{url}: {type(error).__name__}: {error}") from error
        if answer.status_code == httpx.codes.OK:
            try:
                return decode_json(answer.content, RegisteredSchema)
            except (msgspec.MsgspecError, UnicodeError) as error:
                raise Unavailable("no schema", found=f"{url}: no answer of a registry: {error}") from error
        if answer.status_code == httpx.codes.NOT_FOUND and _error_code(answer.content) in _SCHEMA_NOT_FOUND:
            raise NotFound(f"schema registry {self.name} has no {what}")
        shown = answer.text[:_SHOWN_CHARS_MAX]
        raise Unavailable("refused", found=f"{url}: {answer.status_code} {shown}")


def _again(error: Unavailable) -> Unavailable:
    """Return an error that says the same: one that is raised twice would hold the stacks of both."""
    return Unavailable(error.message, expected=error.expected, found=error.found, action=error.action)


def _error_code(content: bytes) -> int | None:
    try:
        found = msgspec.json.decode(content)
    except (msgspec.MsgspecError, UnicodeError):
        return None
    code = found.get("error_code") if isinstance(found, dict) else None
    return code if isinstance(code, int) else None


@dataclass
class SchemaRegistries:
    """The registries that this host knows. A client is made when it is first asked for. Thread-safe."""

    addresses: Mapping[str, _Address] = field(repr=False)
    _clients: dict[str, SchemaRegistry] = field(default_factory=dict, repr=False)
    _lock: Lock = field(default_factory=Lock, repr=False)

    @classmethod
    def of_host(cls, settings: Settings) -> SchemaRegistries:
        """Raises DefinitionError: the file, or one that it names, cannot be read or is open to others."""
        addresses = {} if settings.schema_registries is None else _read(settings.schema_registries)
        if settings.schema_registry:
            urls = tuple(url.strip().rstrip("/") for url in settings.schema_registry.split(","))
            addresses.setdefault(DEFAULT_REGISTRY, _Address(_checked(DEFAULT_REGISTRY, urls)))
        return cls(addresses)

    def get(self, name: str) -> SchemaSource:
        """Return the registry of a name. Raises DefinitionError where this host has none."""
        with self._lock:
            if name not in self._clients:
                if name not in self.addresses:
                    raise DefinitionError(
                        f"this host knows no schema registry {name}",
                        expected=", ".join(sorted(self.addresses)) or "one in RTOLAP_SCHEMA_REGISTRY",
                        action=did_you_mean(name, self.addresses)
                        or "declare it in the file that RTOLAP_SCHEMA_REGISTRIES names",
                    )
                self._clients[name] = SchemaRegistry(name, self.addresses[name])
            return self._clients[name]

    def close(self) -> None:
        with self._lock:
            for client in self._clients.values():
                client.close()


def _read(path: Path) -> dict[str, _Address]:
    parsed = read_operator_yaml(path, "the file of schema registries")
    named = parsed.get("registries") if isinstance(parsed, dict) and set(parsed) == {"registries"} else None
    if not isinstance(named, dict):
        raise DefinitionError(f"{path} declares no registries", expected="registries: {name: {urls: [...]}}")
    return {str(name): _address(str(name), declared) for name, declared in named.items()}


def _address(name: str, declared: Any) -> _Address:
    where = f"schema registry {name}"
    keys = ("urls", "user", "password", "token", "ca_file")
    if not isinstance(declared, dict) or not set(declared) <= set(keys):
        raise DefinitionError(f"{where} is not declared", expected=f"a mapping with keys {', '.join(keys)}")
    urls = declared.get("urls")
    if not isinstance(urls, list) or not urls or not all(isinstance(url, str) for url in urls):
        raise DefinitionError(f"{where} has no address", expected="urls: [http(s)://host:port]")
    texts = {key: declared.get(key) for key in ("user", "ca_file")}
    for key, value in texts.items():
        if value is not None and not isinstance(value, str):
            raise DefinitionError(f"{where}: {key} has no value", expected="a text")
    if (declared.get("user") is None) != (declared.get("password") is None) or (
        declared.get("token") is not None and declared.get("user") is not None
    ):
        raise DefinitionError(
            f"{where} cannot log in", expected="user and password, or token", found="parts of both"
        )
    return _Address(
        _checked(name, tuple(url.rstrip("/") for url in urls)),
        texts["user"],
        _secret(where, "password", declared.get("password")),
        _secret(where, "token", declared.get("token")),
        None if texts["ca_file"] is None else Path(texts["ca_file"]),
    )


def _checked(name: str, urls: tuple[str, ...]) -> tuple[str, ...]:
    for url in urls:
        try:
            http_url(url)
        except ValueError:
            raise DefinitionError(
                f"schema registry {name} has no address",
                expected="http(s)://host:port",
                found=repr(without_credentials(url)),
            ) from None
    return urls


def _secret(where: str, key: str, value: object) -> str | None:
    return None if value is None else secret(where, key, value)
