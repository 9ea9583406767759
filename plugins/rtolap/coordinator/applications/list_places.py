"""The places that host lists may be read from: the author of an application may not read what the
coordinators can."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from rtolap.base.errors import DefinitionError
from rtolap.base.settings import Settings
from rtolap.model.application import Application, HostList


class ListPlaces(NamedTuple):
    """`servers`: `host` for any port of it, or `host:port`."""

    folders: Sequence[Path] = ()
    servers: Sequence[str] = ()

    @classmethod
    def of(cls, settings: Settings) -> ListPlaces:
        folders = _words(settings.host_list_folders)
        return cls(
            tuple(map(Path, folders)) or (settings.include_dir,), tuple(_words(settings.host_list_servers))
        )

    def check(self, listed: HostList) -> None:
        """Raises DefinitionError for a file or an address elsewhere; symbolic links are followed first."""
        if listed.file is not None:
            path = Path(listed.file).resolve()
            if not any(path.is_relative_to(folder.resolve()) for folder in self.folders):
                raise DefinitionError(
                    f"no host list is read from {listed.file}",
                    expected=f"a file below {', '.join(map(str, self.folders)) or 'a declared folder'}",
                    action="name its folder in RTOLAP_HOST_LIST_FOLDERS of the coordinators",
                )
        if listed.url is not None:
            parts = urlsplit(listed.url)
            named = {str(parts.hostname), f"{parts.hostname}:{parts.port}"}
            if parts.scheme not in ("http", "https") or not named & set(self.servers):
                raise DefinitionError(
                    f"no host list is fetched from {parts.hostname}",
                    expected=f"one of {', '.join(self.servers) or 'no servers: none is declared'}",
                    action="name it in RTOLAP_HOST_LIST_SERVERS of the coordinators, as host or host:port",
                )

    def check_application(self, application: Application) -> None:
        for source in application.sources:
            if source.hosts is not None:
                self.check(source.hosts)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]
