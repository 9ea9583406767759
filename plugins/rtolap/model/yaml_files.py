"""Definition files declare `kind: table | cube | lookup | application | stored_table | loader | subscription
| kafka_fleet | publication`. A file has one or many documents, and may stand in folders.

`read_definitions` reads them strictly, validates them against each other and raises one DefinitionError
that lists every problem as `file:line: key: what; expected …; found …; did you mean …?`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import msgspec
import yaml

from rtolap.base.errors import DefinitionError
from rtolap.model.application import Application
from rtolap.model.cube import Cube, Schema
from rtolap.model.fleet import KafkaFleet
from rtolap.model.formats.record_format import RecordFormat
from rtolap.model.formats.schema_files import with_schema
from rtolap.model.loader import Loader
from rtolap.model.problems import Problem, did_you_mean, unknown_name
from rtolap.model.publication import Publication
from rtolap.model.stored.schema import initial_schema
from rtolap.model.stored.table import StoredTable
from rtolap.model.subscription import Subscription
from rtolap.model.table import Lookup, Table
from rtolap.model.validation.application import application_problems, cube_watermark_problems
from rtolap.model.validation.cube import cube_problems
from rtolap.model.validation.definition import lookup_problems, table_problems
from rtolap.model.validation.fleet import fleet_problems
from rtolap.model.validation.loader import loader_problems
from rtolap.model.validation.lookup import stored_lookup_problems
from rtolap.model.validation.names import name_problems
from rtolap.model.validation.publication import publication_problems, published_cuboid
from rtolap.model.validation.stored_table import stored_table_problems
from rtolap.model.validation.subscription import subscription_problems
from rtolap.model.yaml_nodes import INVALID, NodeReader

Definition = (
    Table | Cube | Lookup | Application | StoredTable | Loader | Subscription | KafkaFleet | Publication
)
KINDS: dict[str, type[Definition]] = {
    "table": Table,
    "cube": Cube,
    "lookup": Lookup,
    "application": Application,
    "stored_table": StoredTable,
    "loader": Loader,
    "subscription": Subscription,
    "kafka_fleet": KafkaFleet,
    "publication": Publication,
}
OTHER_FILES = frozenset(("receivers.yaml",))  # beside the definitions, but read by the receivers' DAG
_SUFFIXES = (".yaml", ".yml")
_FILE_BYTES_MAX = 1 << 20
_KIND_KEY = frozenset(("kind",))
D = TypeVar("D", Table, Cube, Lookup, Application, StoredTable, Loader, Subscription, KafkaFleet, Publication)


def _nothing(definition: Definition) -> Iterable[Problem]:
    return ()


class Definitions(msgspec.Struct, frozen=True):
    """All definitions by name; stored tables by `database.name`.

    The table of every cube is among `tables`.
    """

    tables: dict[str, Table]
    lookups: dict[str, Lookup]
    cubes: dict[str, Cube]
    applications: dict[str, Application] = {}
    stored_tables: dict[str, StoredTable] = {}
    loaders: dict[str, Loader] = {}
    subscriptions: dict[str, Subscription] = {}
    fleets: dict[str, KafkaFleet] = {}
    publications: dict[str, Publication] = {}

    def schema(self, cube: str) -> Schema:
        return Schema(self.tables[self.cubes[cube].table], self.cubes[cube])


class _Document(msgspec.Struct, frozen=True):
    file: Path
    kind: str
    value: Definition
    reader: NodeReader

    @property
    def name(self) -> str:
        return self.value.qualified_name if isinstance(self.value, StoredTable) else self.value.name


def read_definitions(*paths: Path, also: Callable[[Definition], Iterable[Problem]] = _nothing) -> Definitions:
    """Read files, and every YAML file below folders; a file that is named twice is read once.

    `also`: more problems of a definition, such as those of this host. Raises DefinitionError with all
    problems of all of them.
    """
    complaints: list[str] = []
    documents: list[_Document] = []
    broken: set[str] = set()
    files: dict[Path, Path] = {}
    for path in paths:
        try:
            files |= {file.resolve(): file for file in definition_files(path)}
        except DefinitionError as error:
            complaints.append(str(error))
    for file in files.values():
        documents += _read_file(file, complaints, broken)
    tables = _unique(documents, Table, complaints)
    lookups = _unique(documents, Lookup, complaints)
    cubes = _unique(documents, Cube, complaints)
    applications = _unique(documents, Application, complaints)
    stored_tables = _unique(documents, StoredTable, complaints)
    loaders = _unique(documents, Loader, complaints)
    subscriptions = _unique(documents, Subscription, complaints)
    fleets = _unique(documents, KafkaFleet, complaints)
    publications = _unique(documents, Publication, complaints)
    for document in documents:
        problems = _problems(document, tables, cubes, applications, stored_tables)
        complaints += _lines(document, [one for one in problems if not _of_broken(document, one, broken)])
        complaints += _lines(document, list(also(document.value)))
    if complaints:
        raise DefinitionError("\n".join(complaints))
    return Definitions(
        tables,
        lookups,
        cubes,
        applications,
        stored_tables,
        loaders,
        subscriptions,
        fleets,
        publications,
    )


def read_fleets(*paths: Path) -> dict[str, KafkaFleet]:
    """Return the registries of Kafka fleets alone: what else the files declare is not looked at.

    Raises DefinitionError as `read_definitions`; a folder may have no files.
    """
    complaints: list[str] = []
    documents: list[_Document] = []
    for path in paths:
        for file in _yaml_files(path) if path.is_dir() else definition_files(path):
            documents += _read_file(file, complaints, set(), only="kafka_fleet")
    fleets = _unique(documents, KafkaFleet, complaints)
    for document in documents:
        complaints += _lines(document, _problems(document, {}, {}, {}, {}))
    if complaints:
        raise DefinitionError("\n".join(complaints))
    return fleets


def definition_files(path: Path) -> tuple[Path, ...]:
    """Return the files of definitions. Raises DefinitionError if there is nothing to read."""
    if path.is_dir():
        files = _yaml_files(path)
        if not files:
            raise DefinitionError(f"no definitions in {path}", expected="*.yaml files", found="none")
        return files
    if not path.is_file():
        raise DefinitionError(
            f"cannot read {path}", expected="a YAML file or a folder", found="nothing there"
        )
    return (path,)


def _yaml_files(folder: Path) -> tuple[Path, ...]:
    found = [each for each in folder.rglob("*") if each.suffix in _SUFFIXES and each.is_file()]
    return tuple(sorted(each for each in found if each.name not in OTHER_FILES))


def _of_broken(document: _Document, problem: Problem, broken: set[str]) -> bool:
    """Return True if the problem is a table that is there but cannot be read: that was reported already."""
    return isinstance(document.value, Cube) and problem.key == ("table",) and document.value.table in broken


def _read_file(
    file: Path, complaints: list[str], broken: set[str], only: str | None = None
) -> list[_Document]:
    """Read the documents of a file. `broken` takes the names of tables that cannot be read. `only` selects
    documents of a kind."""
    documents: list[_Document] = []
    try:
        if file.stat().st_size > _FILE_BYTES_MAX:
            complaints.append(f"{file}: too large; expected at most {_FILE_BYTES_MAX} bytes")
            return []
        loader = yaml.SafeLoader(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        complaints.append(f"{file}: cannot be read; {error}")
        return []
    try:
        while loader.check_node():
            node = loader.get_node()
            if node is None or only not in (None, _kind_of(node)):
                continue
            document = _read_document(file, loader, node, complaints, broken)
            if document is not None:
                documents.append(document)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        complaints.append(f"{file}:{line}: not YAML; {error.problem or error}")
    finally:
        loader.dispose()
    return documents


def _read_document(
    file: Path, loader: yaml.SafeLoader, node: yaml.Node, complaints: list[str], broken: set[str]
) -> _Document | None:
    line = node.start_mark.line + 1
    kind = _kind_of(node)
    if kind not in KINDS:
        problem = Problem(
            ("kind",) if kind else (),
            "unknown kind of definition" if kind else "a document without a kind",
            expected=f"kind: {', '.join(KINDS)}",
            found=repr(kind) if kind else "none",
            hint=did_you_mean(kind or "", KINDS),
            line=line,
        )
        complaints.append(problem.text(str(file)))
        return None
    reader = NodeReader(loader)
    value = reader.struct(node, KINDS[kind], _KIND_KEY)
    complaints += [
        msgspec.structs.replace(problem, key=reader.as_written(problem.key)).text(str(file))
        for problem in reader.problems
    ]
    if value is INVALID:
        broken |= {_text_of(node, "name") or ""} if kind == "table" else set()
        return None
    try:
        if isinstance(value, Table | Loader) and isinstance(value.format, RecordFormat):
            value = msgspec.structs.replace(value, format=with_schema(value.format, file.parent))
    except DefinitionError as error:
        key = ("format", "schema_file")
        problem = Problem(key, error.message, str(error.expected), str(error.found), line=reader.line_of(key))
        complaints.append(problem.text(str(file)))
        broken |= {_text_of(node, "name") or ""} if kind == "table" else set()
        return None
    return _Document(file, kind, value, reader)


def _kind_of(node: yaml.Node) -> str | None:
    return _text_of(node, "kind")


def _text_of(node: yaml.Node, wanted: str) -> str | None:
    if not isinstance(node, yaml.MappingNode):
        return None
    for key, value in node.value:
        if key.value == wanted and isinstance(value, yaml.ScalarNode):
            return str(value.value)
    return None


def _problems(
    document: _Document,
    tables: dict[str, Table],
    cubes: dict[str, Cube],
    applications: dict[str, Application],
    stored_tables: dict[str, StoredTable],
) -> list[Problem]:
    value = document.value
    if isinstance(value, Table):
        return list(table_problems(value))
    if isinstance(value, Lookup):
        problems = list(lookup_problems(value))
        behind = stored_tables.get(value.stored_table or "")
        if behind is not None and not problems and not stored_table_problems(behind):
            problems += stored_lookup_problems(value, initial_schema(behind))
        if value.name in cubes:
            problems.append(Problem(("name",), "a cube has this name already", found=repr(value.name)))
        return problems
    if isinstance(value, Application):
        return list(application_problems(value))
    if isinstance(value, StoredTable):
        return list(stored_table_problems(value))
    if isinstance(value, Loader):
        return list(loader_problems(value))
    if isinstance(value, Subscription):
        return list(subscription_problems(value))
    if isinstance(value, KafkaFleet):
        return list(fleet_problems(value))
    if isinstance(value, Publication):
        return _publication_problems(value, cubes)
    problems = name_problems(value.name, ("name",))
    table = tables.get(value.table)
    if table is None:
        expected = "" if tables else "one of none: declare a table first"
        problems.append(unknown_name(("table",), "no such table", value.table, sorted(tables), expected))
    elif not table_problems(table):  # with a broken table every dimension would complain again
        problems += cube_problems(Schema(table, value))
        problems += cube_watermark_problems(Schema(table, value), applications)
    return problems


def _publication_problems(publication: Publication, cubes: dict[str, Cube]) -> list[Problem]:
    """The cube may be declared elsewhere: its cuboid is looked at where both are declared together."""
    problems = list(publication_problems(publication))
    cube = cubes.get(publication.cube)
    if cube is not None and not problems:
        try:
            published_cuboid(publication, cube)
        except DefinitionError as error:
            problems.append(Problem(("cuboid",), str(error)))
    return problems


def _unique(documents: list[_Document], kind: type[D], complaints: list[str]) -> dict[str, D]:
    found: dict[str, D] = {}
    for document in documents:
        if not isinstance(document.value, kind):
            continue
        first = found.setdefault(document.name, document.value)
        if first is not document.value:
            problem = Problem(("name",), f"{document.kind} is declared twice", found=repr(document.name))
            complaints += _lines(document, [problem])
    return found


def _lines(document: _Document, problems: list[Problem]) -> list[str]:
    reader = document.reader
    return [
        msgspec.structs.replace(
            problem, line=reader.line_of(problem.key), key=reader.as_written(problem.key)
        ).text(str(document.file))
        for problem in problems
    ]
