"""A Spark Connect service has an address, and asks for a token."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from rtolap.base.cluster_secret import SPARK, derived_key
from rtolap.base.errors import DefinitionError
from rtolap.base.files import read_provided
from rtolap.base.settings import Settings

_EXPECTED = "sc://localhost:PORT, or sc://HOST:PORT/;use_ssl=true"


@dataclass(frozen=True)
class SparkService:
    """A Spark Connect service.

    Attributes:
        url: as Spark Connect writes it, without the token.
        token: the secret that both sides have; not shown.
    """

    url: str
    token: str = field(repr=False)

    @property
    def connection(self) -> str:
        """The connection string of a client, which contains the token."""
        separator = "" if self.url.endswith(("/;", ";")) else ";" if "/;" in self.url else "/;"
        return f"{self.url.rstrip('/')}{separator}token={self.token}"


def declared_service(settings: Settings) -> SparkService | None:
    """Return the service that the settings declare; None if there is none.

    Raises DefinitionError for an address at which the token would be sent in clear over a network.
    """
    url = settings.history_spark.strip()
    if not url:
        return None
    parts = urlsplit(url)
    options = parts.path.removeprefix("/").strip(";").split(";") if parts.path else []
    is_encrypted = "use_ssl=true" in options
    if parts.scheme != "sc" or not parts.hostname or parts.username or "token=" in url:
        raise _refused("RTOLAP_HISTORY_SPARK is no address of a Spark Connect service", url)
    if not is_encrypted and parts.hostname != "localhost":
        raise _refused("RTOLAP_HISTORY_SPARK would send its token over the network in clear", url)
    return SparkService(url, service_token(settings))


def service_token(settings: Settings) -> str:
    """Return the token of the Spark service: of its file, or derived from the cluster's token."""
    if settings.history_spark_token_file is None:
        return derived_key(settings.token(), SPARK).hex()
    path = settings.history_spark_token_file
    token = read_provided(
        path, "the token of the Spark service", action="create it, or unset RTOLAP_HISTORY_SPARK_TOKEN_FILE"
    ).strip()
    if not token.isascii() or not token.replace("-", "").replace("_", "").isalnum():
        raise DefinitionError(
            "the token of the Spark service is not usable",
            expected="letters, digits, - and _",
            found=f"something else in {path}",
        )
    return token


def _refused(message: str, url: str) -> DefinitionError:
    shown = url.partition("token=")[0]
    return DefinitionError(message, expected=_EXPECTED, found=repr(shown[:200]))
