"""A real schema registry: Apicurio Registry, which speaks Confluent's REST, fetched from Maven Central.

It keeps its schemas in a file: one that is killed and started again has them. Of Protobuf it is given
descriptors in Base64, because it answers with what it was given, and leaves `format=serialized` aside.
"""

from __future__ import annotations

import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
from rtolap.stack.artifacts import fetch_jars, find_java
from rtolap.stack.java import LEAN_FLAGS
from rtolap.stack.ports import free_port
from rtolap.stack.process import ManagedProcess
from rtolap.stack.spec import ProcessSpec

_VERSION = "3.0.9"  # the last one at hand that runs on Java 17
_ARCHIVE = f"apicurio-registry-app-{_VERSION}-all.tar.gz"
_IVY = f"""<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
<info organisation="local" module="registry"/>
<configurations><conf name="registry"/></configurations>
<dependencies>
<dependency org="io.apicurio" name="apicurio-registry-app" rev="{_VERSION}" transitive="false"
 conf="registry-&gt;default">
<artifact name="apicurio-registry-app" type="jar" ext="tar.gz" m:classifier="all"/></dependency>
</dependencies></ivy-module>
"""
_CHECKSUMS = {f"registry/{_ARCHIVE}": "2b28181501a20cbf6efcd77f9b7153908fc01f3d3a7c32024c0bd9e1b04c8a43"}
_TYPE = "application/vnd.schemaregistry.v1+json"
_TIMEOUT_S = 30.0


def registry_archive() -> Path:
    """Return the registry's archive, fetched first when the cache lacks it (109 MB, once)."""
    folder = fetch_jars(_IVY, ("registry",), "Apicurio Registry", checksums=_CHECKSUMS, poms=False)
    return folder / "registry" / _ARCHIVE


class Apicurio:
    """A registry in a process of its own. Use as a context manager; it may be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}/apis/ccompat/v7"
        program = folder / "program"
        self._client = httpx.Client(timeout=_TIMEOUT_S, headers={"Content-Type": _TYPE})

        def prepare() -> None:
            if not program.exists():
                with tarfile.open(registry_archive()) as archive:
                    archive.extractall(program, filter="data")

        self.process = ManagedProcess(
            ProcessSpec(
                name="registry",
                folder=folder,
                argv=(
                    find_java(),
                    "-Xmx256m",
                    *LEAN_FLAGS,
                    "-Dquarkus.http.host=127.0.0.1",
                    f"-Dquarkus.http.port={self._port}",
                    f"-Dapicurio.datasource.url=jdbc:h2:file:{folder.absolute() / 'schemas'}",
                    *("-jar", str(program / f"apicurio-registry-app-{_VERSION}-runner.jar")),
                ),
                address=f"127.0.0.1:{self._port}",
                ports=(self._port,),
                ready=lambda _: self._missing(),
                prepare=prepare,
                ready_timeout_s=180.0,
            )
        )

    def __enter__(self) -> Apicurio:
        self.process.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.process.stop()
        self._client.close()

    def register(
        self, subject: str, schema: str, *, kind: str = "AVRO", references: Sequence[Mapping[str, Any]] = ()
    ) -> int:
        """Register a schema as the next version of its subject; return its id."""
        body = {"schema": schema, "schemaType": kind, "references": list(references)}
        answer = self._client.post(f"{self.url}/subjects/{subject}/versions", json=body)
        assert answer.status_code == httpx.codes.OK, answer.text
        number: int = answer.json()["id"]
        return number

    def get(self, path: str) -> tuple[int, dict[str, Any]]:
        """Return the status and the content of an answer."""
        answer = self._client.get(self.url + path)
        return answer.status_code, answer.json()

    def _missing(self) -> str | None:
        try:
            answer = self._client.get(f"{self.url}/subjects")
        except httpx.HTTPError as error:
            return f"no answer: {error}"
        return None if answer.status_code == httpx.codes.OK else f"{answer.status_code} {answer.text[:200]}"
