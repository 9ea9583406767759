"""Are the build specifications of a request for this host's store, and inside its layout?

A build deletes and writes below the `location` that its specification names, and reads its parts. The
coordinator gives specifications out; whoever has the cluster's token could make others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from rtolap.agent.host import Host
from rtolap.base.errors import DefinitionError
from rtolap.base.undecodable import UNDECODABLE
from rtolap.model.build_spec import BuildSpec
from rtolap.protocols.agent.messages import FILES_MARK

BUILD_JOB = "build_segment.py"
_PART = r"[A-Za-z0-9_+=,@~-][A-Za-z0-9_.+=,@~-]*"
_NAME = re.compile(_PART)
_FILE = re.compile(re.escape(FILES_MARK) + "/(.+)")


def check_builds(arguments: Sequence[str], files: Mapping[str, str], host: Host) -> None:
    """`arguments` of the build job: files of the request itself, with specifications that fit this host."""
    for argument in arguments:
        name = _FILE.fullmatch(argument)
        if name is None or name[1] not in files:
            raise DefinitionError(
                "build refused",
                expected=f"{FILES_MARK}/ and the name of a file of the request, for each argument",
                found=repr(argument),
            )
        for spec in _specs(files[name[1]]):
            _check(spec, host)


def check_arguments(arguments: Sequence[str]) -> None:
    """The form alone, for a process that is started again: its files were checked when they came."""
    if not arguments or not all(_FILE.fullmatch(argument) for argument in arguments):
        raise DefinitionError(
            "build refused", expected=f"files of the request, as {FILES_MARK}/name", found=repr(arguments)
        )


def _specs(text: str) -> list[BuildSpec]:
    try:
        if text.lstrip().startswith("["):
            return msgspec.json.decode(text, type=list[BuildSpec])
        return [msgspec.json.decode(text, type=BuildSpec)]
    except UNDECODABLE as error:
        raise DefinitionError("build refused: no build specification", found=str(error)) from error


def _check(spec: BuildSpec, host: Host) -> None:
    if spec.object_store.rstrip("/") != host.object_store.rstrip("/"):
        raise DefinitionError(
            "build refused: another object store",
            expected=f"{host.object_store}, which this host is set up with",
            found=spec.object_store,
            action="give coordinator and agents the same RTOLAP_OBJECT_STORE",
        )
    for name in (spec.cube, spec.segment, spec.build_id):
        _fits("name", name, _NAME)
    segment = f"{re.escape(spec.cube)}/{re.escape(spec.segment)}"
    location = f"history/{segment}/v{spec.version}-{re.escape(spec.build_id)}"
    _fits("location", spec.location, re.compile(location))
    for part in spec.parts:
        _fits("part", part.path, re.compile(f"staged/{segment}/v{spec.version}/{_PART}"))
    if spec.previous_location is not None:
        before = re.compile(f"history/{segment}/v{spec.version - 1}-{_PART}")
        _fits("previous version", spec.previous_location, before)


def _fits(what: str, found: str, pattern: re.Pattern[str]) -> None:
    if not pattern.fullmatch(found):
        raise DefinitionError(
            f"build refused: its {what} lies outside the store's layout",
            expected=pattern.pattern.replace("\\", ""),
            found=repr(found),
        )
