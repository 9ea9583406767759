"""Specifications of our own Spark jobs, checked before a process is made of them.

A build deletes and writes below the `location` that its specification names, and reads its parts; a batch
reads a source, and writes below its `folder`; a merge reads its members, and writes below its `folder`. The
coordinator gives specifications out, but everybody with the cluster's token could make others. Each has to be
for this host's store, inside its layout, and of a source that the host's operator allows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence

from rtolap.agent.host import Host
from rtolap.base.decoding import decode_json
from rtolap.base.errors import DefinitionError
from rtolap.base.undecodable import UNDECODABLE
from rtolap.model.batch import BATCH_ID, ROWS_FOLDER, BatchSpec, check_source
from rtolap.model.build_spec import BuildSpec
from rtolap.model.merging.specs import MERGE_ID, MergeSpec
from rtolap.protocols.agent.messages import FILES_MARK

FILE = re.compile(re.escape(FILES_MARK) + "/(.+)")
_PART = r"[A-Za-z0-9_+=,@~-][A-Za-z0-9_.+=,@~-]*"
_NAME = re.compile(_PART)
_CUBE_ID = r"(?:[0-9a-f]{32}/)?"  # not in folders of before there was one


def files_named(arguments: Sequence[str]) -> list[str]:
    """Return the files of the request that a job's arguments name."""
    return [name[1] for name in map(FILE.fullmatch, arguments) if name is not None]


def check_arguments(arguments: Sequence[str], files: Collection[str] | None = None) -> None:
    """Check that a job's arguments are files of the request. `files`: those that came with it; None for a
    process that is started again, whose files were checked when they came."""
    named = files_named(arguments)
    if not arguments or len(named) != len(arguments) or (files is not None and not set(named) <= set(files)):
        raise DefinitionError(
            "job refused",
            expected=f"{FILES_MARK}/ and the name of a file of the request, for each argument",
            found=repr(list(arguments)),
        )


def _check_builds(text: str, host: Host) -> None:
    for spec in _builds(text):
        _check_build(spec, host)


def _builds(text: str) -> list[BuildSpec]:
    try:
        if text.lstrip().startswith("["):
            return decode_json(text, list[BuildSpec])
        return [decode_json(text, BuildSpec)]
    except UNDECODABLE as error:
        raise DefinitionError("build refused: no build specification", found=str(error)) from error


def _check_build(spec: BuildSpec, host: Host) -> None:
    _check_store("build", spec.object_store, host)
    for name in (spec.cube, spec.segment, spec.build_id):
        _fits("build", "name", name, _NAME)
    segment = f"{re.escape(spec.cube)}/{_CUBE_ID}{re.escape(spec.segment)}"
    location = f"history/{segment}/v{spec.version}-{re.escape(spec.build_id)}"
    _fits("build", "location", spec.location, re.compile(location))
    parts = f"staged/{segment}/v{spec.version}/{_PART}"
    if spec.batch:
        folder = f"batches/{re.escape(spec.cube)}/{_CUBE_ID}{re.escape(spec.batch)}"
        parts = f"{folder}/{ROWS_FOLDER.pattern}/__segment=[0-9]+"
        _fits("build", "batch", spec.batch, BATCH_ID)
    for part in spec.parts:
        _fits("build", "part", part.path, re.compile(parts))
    if spec.previous_location is not None:
        before = re.compile(f"history/{segment}/v{spec.version - 1}-{_PART}")
        _fits("build", "previous version", spec.previous_location, before)


def _check_batch(text: str, host: Host) -> None:
    try:
        spec = decode_json(text, BatchSpec)
    except UNDECODABLE as error:
        raise DefinitionError("batch refused: no plan of a batch", found=str(error)) from error
    _check_store("batch", spec.object_store, host)
    _fits("batch", "name", spec.cube, _NAME)
    _fits("batch", "batch", spec.batch, BATCH_ID)
    folder = f"batches/{re.escape(spec.cube)}/{_CUBE_ID}{re.escape(spec.batch)}"
    _fits("batch", "folder", spec.folder, re.compile(folder))
    check_source(spec.source, spec.table_definition, spec.cube_definition.dimensions)
    where = spec.source.path or spec.source.options.get("url", "")
    if not host.spark_allowed.allows_source(where):
        raise DefinitionError(
            "batch refused: its source is not allowed on this host",
            expected="; ".join(host.spark_allowed.sources) or "one that the host's operator allows; none is",
            found=repr(where),
            action="the file that RTOLAP_SPARK_ALLOWED names lists `sources`",
        )


def _check_merges(text: str, host: Host) -> None:
    try:
        specs = decode_json(text, list[MergeSpec])
    except UNDECODABLE as error:
        raise DefinitionError("merge refused: no list of merges", found=str(error)) from error
    for spec in specs:
        _check_store("merge", spec.object_store, host)
        _fits("merge", "name", spec.cube, _NAME)
        _fits("merge", "id", spec.merge, MERGE_ID)
        cube = f"{re.escape(spec.cube)}/{_CUBE_ID}"
        _fits("merge", "folder", spec.folder, re.compile(f"merged/{cube}{spec.level}/{spec.merge}"))
        for member in spec.members:
            _fits("merge", "name", member.segment, _NAME)
            version = f"history/{cube}{re.escape(member.segment)}/v{member.version}-{_PART}"
            _fits("merge", "member", member.location, re.compile(version))


JOBS: Mapping[str, Callable[[str, Host], None]] = {
    "build_segment.py": _check_builds,
    "merge_segments.py": _check_merges,
    "stage_batch.py": _check_batch,
}


def _check_store(job: str, found: str, host: Host) -> None:
    if found.rstrip("/") != host.object_store.rstrip("/"):
        raise DefinitionError(
            f"{job} refused: another object store",
            expected=f"{host.object_store}, which this host is set up with",
            found=found,
            action="give coordinator and agents the same RTOLAP_OBJECT_STORE",
        )


def _fits(job: str, what: str, found: str, pattern: re.Pattern[str]) -> None:
    if not pattern.fullmatch(found):
        raise DefinitionError(
            f"{job} refused: its {what} lies outside the store's layout",
            expected=pattern.pattern.replace("\\", ""),
            found=repr(found),
        )
