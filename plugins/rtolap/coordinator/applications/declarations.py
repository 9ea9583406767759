"""Definitions of applications: declared, changed and dropped."""

from __future__ import annotations

import msgspec

from rtolap.base.decoding import convert
from rtolap.base.errors import DefinitionError, NotFound, Refused
from rtolap.coordinator.applications.host_lists import ListPlaces
from rtolap.metadata.applications import ApplicationRecords
from rtolap.metadata.definitions import Definitions
from rtolap.metadata.requests import Note
from rtolap.model.application import Application
from rtolap.model.validation.application import cube_watermark_problems, validate_application
from rtolap.protocols.coordinator.messages import Definition


class Declarations:
    """Declares, changes and drops applications, and refuses what would break cubes that close by them.

    The caller locks, so that no epoch begins of what is being changed.
    """

    def __init__(self, records: ApplicationRecords, definitions: Definitions, places: ListPlaces) -> None:
        self._records = records
        self._definitions = definitions
        self._places = places

    def create(self, definition: Definition) -> None:
        """Raises DefinitionError, Refused if there is another one of that name."""
        self._records.create(self._application(definition))

    def change(self, name: str, definition: Definition) -> bool:
        """Change the definition.

        Return False if it is the same already. Raises DefinitionError, NotFound, Refused.
        """
        application = self._application(definition)
        if application.name != name:
            raise DefinitionError(
                "an application cannot be renamed", expected=f"name {name}", found=application.name
            )
        if self._records.definition(name) == application:
            return False
        for cube in self._cubes_of(name):
            _refuse_what_misses(self._definitions, cube, application)
        self._records.change(application)
        return True

    def drop(self, name: str, note: Note | None = None) -> None:
        """Raises NotFound; Refused where cubes close by it: they would wait for ever."""
        cubes = self._cubes_of(name)
        if cubes:
            raise Refused(
                f"application {name} cannot be dropped",
                found=f"cubes that close by it: {', '.join(cubes)}",
                action="drop them first",
            )
        self._records.drop(name, note)

    def _application(self, definition: Definition) -> Application:
        try:
            application = convert(definition, Application)
        except msgspec.ValidationError as error:
            raise DefinitionError("not an application definition", found=str(error)) from error
        validate_application(application)
        self._places.check_application(application)
        return application

    def _cubes_of(self, application: str) -> list[str]:
        cubes = []
        for name in self._definitions.cubes():
            try:
                mark = self._definitions.cube(name).watermark
            except NotFound:
                continue  # dropped meanwhile
            if mark is not None and mark.application == application:
                cubes.append(name)
        return cubes


def _refuse_what_misses(definitions: Definitions, cube: str, after: Application) -> None:
    problems = cube_watermark_problems(definitions.schema(cube), {after.name: after})
    if problems:
        raise Refused(
            f"application {after.name} cannot be changed so, cube {cube} closes by it: {problems[0].message}",
            expected=problems[0].expected,
            found=problems[0].found,
            action=f"keep what cube {cube} needs, or drop it first",
        )
