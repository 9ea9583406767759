"""The mask of every text that leaves this host in a bundle.

It hides the secrets that this host knows, in whatever way they are written, and what looks like a secret:
passwords in URLs, `Authorization` headers, values behind names such as `password` and `token`, private keys.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import yaml

from rtolap.base.cluster_secret import FLIGHT, RECORDS, SPARK, ZOOKEEPER, derived_key
from rtolap.base.settings import Settings

HIDDEN = "(secret)"
_FILE_BYTES_MAX = 4 << 20
_WORD_CHARS_MAX = 3  # a shorter secret is hidden as a whole word only, or no text would be left
_LINE_CHARS_MIN = 8  # of a secret of several lines

# A setting whose file is a secret has a name that ends like this; `test_masking` holds every setting to it.
SECRET_FILE_SETTING = re.compile(r"(password_file|token_file|users_file|tls_key)$")
OPERATOR_FILE_SETTINGS = ("kafka_clusters", "schema_registries", "fleet_sources")

_NAME = (
    r"(?:pass(?:word|wd|phrase)?|pwd|secret|token|credentials?|api[_.-]?key|access[_.-]?key|account[_.-]?key"
    r"|private[_.-]?key|key[_.-]?pem|jaas[_.-]?config|oauthbearer[_.-]?config|authorization|cookie|fernet|jwt"
    r"|signature)"
)
_SECRET_NAME = re.compile(
    rf"(?i){_NAME}(?![A-Za-z])(?!.*(?:file|folder|path|location)$)|(?i:password|passwd)$"
)
_SECRET_VARIABLE = re.compile(rf"(?i){_NAME}\d*$")
_FOLDER_VARIABLES = frozenset({"PWD", "OLDPWD"})
# What repeats is bounded: a log may hold megabytes without a space, and a mask must not take hours for them.
_URL = re.compile(r"(?<![A-Za-z0-9])([A-Za-z][A-Za-z0-9+.-]{0,30}://)[^\s\"'<>]{0,4096}@")
_SCHEME = re.compile(r"(?i)\b(Bearer|Basic|Digest|Negotiate)\s+[^\s\"',;]{4,}")
_HEADER = re.compile(r"(?i)\b((?:proxy-)?authorization|(?:set-)?cookie)\b([\"']?\s*[:=,]\s*)[^\r\n]*")
_VALUE = re.compile(
    rf"(?i)({_NAME}(?![A-Za-z])(?![\w.-]{{0,64}}(?:file|folder|path|location)\b)[\w.-]{{0,64}}[\"']?\s{{0,8}}[:=]{{1,3}}\s{{0,8}})"
    r"(\(secret\)|\"(?:[^\"\\\r\n]|\\.)*\"?|'(?:[^'\\\r\n]|\\.)*'?|[^\s,;&}\])]+)"
)
_JWT = re.compile(r"\beyJ[\w-]{8,4096}\.[\w-]{1,8192}\.[\w-]*")
_KEY_BORDER = " PRIVATE KEY-----"
_KEY_BLOCK = re.compile(
    r"(?s)(?:-----BEGIN[A-Z ]* PRIVATE KEY-----.*?(?:-----END[A-Z ]* PRIVATE KEY-----|\Z)"
    r"|\A[^-]*-----END[A-Z ]* PRIVATE KEY-----)"
)


class Mask:
    """Hides secrets in texts and in plain values."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self.known = frozenset(each for each in secrets if each.strip())
        forms = sorted({form for each in self.known for form in _forms(each)}, key=len, reverse=True)
        self._known = re.compile("|".join(map(_pattern, forms))) if forms else None

    def text(self, text: str) -> str:
        """Return the text without secrets."""
        text = self.without_known(text)
        text = _KEY_BLOCK.sub(HIDDEN, text)
        text = _URL.sub(rf"\1{HIDDEN}@", text)
        text = _HEADER.sub(rf"\1\2{HIDDEN}", text)
        text = _SCHEME.sub(rf"\1 {HIDDEN}", text)
        text = _VALUE.sub(rf"\1{HIDDEN}", text)
        return _JWT.sub(HIDDEN, text)

    def without_known(self, text: str) -> str:
        """Return the text without the secrets that this host knows."""
        return text if self._known is None else self._known.sub(HIDDEN, text)

    def finds_known(self, text: str) -> bool:
        """Return whether the text still holds a secret that this host knows."""
        known = self._known
        return known is not None and any(known.search(part) for part in text.split(HIDDEN))

    def value(self, value: Any) -> Any:
        """Return a plain value without secrets: those behind a secret's name, and those in its texts."""
        if isinstance(value, Mapping):
            return {
                self.text(str(name)): HIDDEN if _is_secret(str(name), each) else self.value(each)
                for name, each in value.items()
            }
        if isinstance(value, (list, tuple)):
            if any(isinstance(each, str) and _KEY_BORDER in each for each in value):
                return self.text("\n".join(map(str, value))).splitlines()  # its lines are one key
            return [self.value(each) for each in value]
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return value if self.without_known(str(value)) == str(value) else HIDDEN
        return value


def is_secret_name(name: str) -> bool:
    """Return whether a value of this name is a secret; the name of a file with one is none."""
    return _SECRET_NAME.search(name) is not None


def _is_secret(name: str, value: object) -> bool:
    return isinstance(value, str) and bool(value) and is_secret_name(name)


def secrets_of_host(settings: Settings, environ: Mapping[str, str]) -> Iterator[str]:
    """Give the secrets that this host knows: in files of settings, in files that operator files name, in
    the environment, and keys that are derived of the token. A file that cannot be read has none to tell."""
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        if isinstance(value, Path) and SECRET_FILE_SETTING.search(name):
            yield from _of_text(_read(value), users=name == "users_file")
    for name in OPERATOR_FILE_SETTINGS:
        path = getattr(settings, name)
        if path is not None:
            yield from _of_operator_file(path)
    token = _read(settings.token_file).strip()
    if token:
        for purpose in (FLIGHT, RECORDS, SPARK, ZOOKEEPER):
            key = derived_key(token, purpose)
            yield from (key.hex(), base64.b64encode(key).decode(), base64.urlsafe_b64encode(key).decode())
    for name, text in environ.items():
        if _SECRET_VARIABLE.search(name) and name not in _FOLDER_VARIABLES:
            yield text


def _of_text(text: str, *, users: bool = False) -> Iterator[str]:
    if users:
        for line in text.splitlines():
            yield from line.split(":")[1:2]
        return
    yield text.strip()
    for line in text.splitlines():
        if len(line.strip()) >= _LINE_CHARS_MIN and not line.startswith("-----"):
            yield line.strip()


def _of_operator_file(path: Path) -> Iterator[str]:
    try:
        declared = yaml.safe_load(_read(path))
    except (yaml.YAMLError, ValueError, RecursionError):
        return  # nothing of the file is in the bundle, and a service could not read it either
    yield from _of_declared(declared)


def _of_declared(declared: object) -> Iterator[str]:
    if isinstance(declared, Mapping):
        for name, value in declared.items():
            if isinstance(value, Mapping) and set(value) == {"file"}:
                yield from _of_text(_read(Path(str(value["file"]))))
            elif isinstance(value, (str, int)) and is_secret_name(str(name)):
                yield str(value)
            elif str(name) == "key" and isinstance(value, str):
                yield from _of_text(_read(Path(value)))
            else:
                yield from _of_declared(value)
    elif isinstance(declared, list):
        for each in declared:
            yield from _of_declared(each)


def _read(path: Path) -> str:
    try:
        if not path.is_file():
            return ""
        with path.open("rb") as file:
            return file.read(_FILE_BYTES_MAX).decode("utf-8", "replace")
    except OSError:
        return ""  # its secret is not known to this user, who may not read it


def _forms(secret: str) -> Iterator[str]:
    """Give the ways in which texts write a secret."""
    yield secret
    yield from (quote(secret, safe=""), quote(secret), quote_plus(secret))
    yield json.dumps(secret)[1:-1]
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
    yield repr(secret)[1:-1]
    if len(secret) > _WORD_CHARS_MAX:
        yield base64.b64encode(secret.encode()).decode().rstrip("=")


def _pattern(form: str) -> str:
    escaped = re.escape(form)
    return rf"(?<!\w){escaped}(?!\w)" if len(form) <= _WORD_CHARS_MAX else escaped
