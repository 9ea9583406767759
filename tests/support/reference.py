"""The generated parts of the docs: settings, definitions, limits, options of commands, SQL's functions.

    python -m tests.support.reference       writes docs/reference.md, and the lists of docs/sql.md and
                                            docs/operations/metrics.md, and docker/monitoring/dashboard.json

Each line comes from the code that reads the value, so a default on the page is the one that holds.
"""

from __future__ import annotations

import ast
import importlib
import re
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec
import sqlglot
from pydantic_core import PydanticUndefined
from rtolap.base.errors import RtolapError
from rtolap.base.settings import Settings
from rtolap.cli.main import MOUNTS, load
from rtolap.model.durations import format_duration
from rtolap.model.yaml_files import KINDS
from rtolap.query.approval.nodes import approve
from rtolap.query.functions import names as function_names
from rtolap.query.functions import table as function_table
from rtolap.query.sql.dialect import RtolapSql
from sqlglot.errors import SqlglotError

from tests.support.monitoring import dashboard
from tests.support.pages import metric_reference

ROOT = Path(__file__).resolve().parents[2]
PAGE, SQL_PAGE = ROOT / "docs" / "reference.md", ROOT / "docs" / "sql.md"
FUNCTIONS_BEGIN = "<!-- functions: written by `make reference` -->\n"
FUNCTIONS_END = "<!-- end of functions -->\n"
_VARIABLE = re.compile(r"\bRTOLAP_[A-Z][A-Z0-9_]*[A-Z0-9]\b")
PRODUCT = ("plugins", "dags", "docker", "include", "scripts", "spark_jobs")
_BOUND = re.compile(r"[A-Z][A-Z0-9_]*_(MAX|MIN)(_[A-Z]+)?")
_NO_VARIABLES = {"RTOLAP_DEFAULT", "RTOLAP_NAMED", "RTOLAP_OPTIONS"}  # names in Python, of a connection

# Variables that no field of Settings reads. Those of a test alone are not for users.
OTHER_VARIABLES: Mapping[str, str] = {
    "RTOLAP_AGENT_FOLDER": "set by an agent for its children: the folder of its logs, no other agent's",
    "RTOLAP_AGENT_GENERATION": "set by an agent for its children: the generation of the process",
    "RTOLAP_AGENT_KEY": "set by an agent for its children: the key of the process",
    "RTOLAP_AGENT_RESTARTS": "set by an agent for its children: how often it has started the process again",
    "RTOLAP_CACHE_DIR": "folder of downloaded jars; `.cache` of the project if it is not set",
    "RTOLAP_IDS": "set by an agent for a job: the ids of the request that asked for it, in its logs",
    "RTOLAP_MAVEN_MIRROR": "base URL of a mirror of Maven Central",
    "RTOLAP_PYTHON": "interpreter that `make setup` uses",
    "RTOLAP_SEEDS": "how many times as many seeds the tests take; 1 if it is not set",
    "RTOLAP_STACK_DIR": "folder of the local stack; `.stack` if it is not set",
    "RTOLAP_STACK_ID": "set by the local stack for its processes, to know them again",
    "RTOLAP_TEST_LONG": "set for tests that take five minutes each",
    "RTOLAP_TEST_SLOWNESS": "how much longer tests wait for servers; 1 if it is not set",
    "RTOLAP_TEST_SPARK_CONNECTOR": "jar of the Spark connector for the tests that write with it",
    "RTOLAP_TEST_UNTIL": "when no further test begins, in seconds since 1970; never if it is not set",
}

# (module, constant, unit, meaning): every bound of a definition, and of what a service holds in memory.
LIMITS: tuple[tuple[str, str, str, str], ...] = (
    ("model.validation.names", "NAME_LENGTH_MAX", "characters", "a name"),
    ("model.validation.definition", "COLUMNS_MAX", "columns", "a table"),
    ("model.validation.definition", "ROUNDED_PRECISION_MAX", "digits", "a decimal column that is rounded"),
    ("model.validation.cube", "DIMENSIONS_MAX", "dimensions", "a cube"),
    ("model.validation.cube", "CUBOIDS_MAX", "cuboids", "a cube"),
    ("model.validation.cube", "GROUP_COMBINATIONS_MAX", "combinations", "an aggregation group"),
    ("model.validation.cube", "CONSUMER_TASKS_MAX", "replica sets", "`consumer_tasks_max` of a cube"),
    ("model.validation.cube", "WINDOW_MIN_MS", "ms", "the shortest window of a segment"),
    ("model.validation.cube", "WINDOW_MAX_MS", "ms", "the longest window of a segment"),
    ("model.validation.cube", "LG_K_MIN", "", "the smallest `lg_k` of a sketch"),
    ("model.validation.cube", "LG_K_MAX", "", "the largest `lg_k` of a sketch"),
    ("model.validation.cube", "KLL_K_MIN", "", "the smallest `k` of `approx_percentile` and `approx_top_k`"),
    ("model.validation.cube", "KLL_K_MAX", "", "the largest `k` of `approx_percentile` and `approx_top_k`"),
    ("aggregates.approx_top_k", "TOP_MAX", "values", "an answer of `APPROX_TOP_K`"),
    ("aggregates.approx_top_k", "TEXT_CHARACTERS_MAX", "characters", "a text that `APPROX_TOP_K` counts"),
    ("model.validation.application", "LEVELS_MAX", "levels", "an application"),
    ("model.validation.application", "SHARE_PPM_MAX", "ppm", "a share that may be late or missing"),
    ("model.validation.stored_table", "BUCKETS_MAX", "buckets", "a stored table"),
    ("model.validation.stored_table", "AHEAD_MAX", "partitions", "`ahead` and `behind`"),
    ("model.validation.loader", "PARALLEL_MAX", "batches", "`parallel` of a loader"),
    ("model.validation.loader", "ROWS_MAX", "rows", "`batch.rows` of a loader"),
    ("model.validation.loader", "BYTES_MAX", "bytes", "`batch.bytes` of a loader"),
    ("model.validation.loader", "KEY_MAX", "", "`application.key` of a loader"),
    ("model.validation.subscription", "PORTS_MAX", "ports", "a subscription"),
    ("model.validation.subscription", "LANES_MAX", "lanes", "a listener"),
    ("model.validation.subscription", "TRIES_MAX", "tries", "`poison.tries` of a subscription"),
    ("model.validation.fleet", "BROKER_ID_MAX", "", "the largest id of a broker"),
    ("model.validation.fleet", "RANGE_MAX", "brokers", "a range of ids"),
    ("model.validation.fleet", "FACTOR_MAX", "replicas", "a partition"),
    ("model.validation.fleet", "RESERVE_PERCENT_MAX", "percent", "a reserve"),
    ("model.validation.fleet", "RESERVE_BROKERS_MAX", "brokers", "a reserve"),
    ("model.validation.fleet", "SLOW_FOR_MS_MAX", "ms", "how long a broker is slow before it is called so"),
    ("query.lookups", "BYTES_MAX", "bytes", "a lookup, in the memory of a query service"),
)


def settings_lines() -> Iterator[str]:
    yield from ("| variable | default | meaning |", "|---|---|---|")
    for name, field in Settings.model_fields.items():
        default = field.get_default(call_default_factory=False)
        shown = (
            "of the installation"
            if default in (None, PydanticUndefined) and field.default_factory
            else ("" if default in (None, "") else f"`{default}`")
        )
        yield f"| `RTOLAP_{name.upper()}` | {shown} | {_cell(field.description or '')} |"


def variables_in(*sources: str) -> set[str]:
    """Return the names of variables in the programs and scripts of these folders."""
    found: set[str] = set()
    for source in sources:
        place = ROOT / source
        for file in [place] if place.is_file() else place.rglob("*"):
            if file.is_file() and "__pycache__" not in file.parts and file.name != "reference.py":
                found |= set(_VARIABLE.findall(file.read_text(errors="ignore")))
    return found - _NO_VARIABLES


def other_lines() -> Iterator[str]:
    yield from ("| variable | meaning |", "|---|---|")
    for name, meaning in OTHER_VARIABLES.items():
        yield f"| `{name}` | {meaning} |"


def definition_lines(kind: str) -> Iterator[str]:
    yield from ("| key | default |", "|---|---|")
    for key, default in _keys(KINDS[kind], ""):
        yield f"| `{key}` | {default} |"


def _keys(struct: type[msgspec.Struct], prefix: str) -> Iterator[tuple[str, str]]:
    hints = typing.get_type_hints(struct)
    for field in msgspec.structs.fields(struct):
        name = field.encode_name.removesuffix("_ms")
        inner, mark = _struct_in(hints[field.name])
        at = f"{prefix}{name}{mark}"
        if inner is not None:
            yield from _keys(inner, f"{at}.")
        else:
            yield at, _default(field, hints[field.name])


def _struct_in(hint: Any) -> tuple[type[msgspec.Struct] | None, str]:
    """Return the struct within a hint, and how often it stands there."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return hint, ""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (typing.Union, types.UnionType):
        found = [_struct_in(each) for each in arguments if each is not type(None)]
        return max(found, key=lambda each: each[0] is not None)
    if origin is tuple:
        return _struct_in(arguments[0])[0], "[]"
    if origin is dict:
        return _struct_in(arguments[1])[0], "{}"
    return None, ""


def _default(field: msgspec.structs.FieldInfo, hint: Any) -> str:
    if field.default is msgspec.NODEFAULT:
        if field.default_factory is msgspec.NODEFAULT:
            return "needed"
        value = field.default_factory()
    else:
        value = field.default
    if get_origin(hint) is Literal:
        others = ", ".join(f"`{each}`" for each in get_args(hint) if each != value)
        return f"`{value}`; or {others}"
    if value is None or value in ((), {}, ""):
        return "none"
    if field.name.endswith("_ms") and isinstance(value, int):
        return f"`{format_duration(value)}`"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def limit_lines() -> Iterator[str]:
    yield from ("| limit | of |", "|---|---|")
    listed = {(module, constant) for module, constant, _, _ in LIMITS}
    others = [(*each, *_words_of(each[1])) for each in bounds_in_code() if each not in listed]
    for module, constant, unit, meaning in (*LIMITS, *others):
        value = getattr(importlib.import_module(f"rtolap.{module}"), constant)
        yield f"| {_amount(value, unit)} | {meaning} |"


def bounds_in_code() -> list[tuple[str, str]]:
    """Return (module, constant) of all public constants of validation that are called a bound."""
    found = []
    for file in sorted((ROOT / "plugins" / "rtolap" / "model" / "validation").glob("*.py")):
        names = {
            target.id
            for node in ast.parse(file.read_text()).body
            if isinstance(node, ast.Assign)
            for each in node.targets
            for target in (each.elts if isinstance(each, ast.Tuple) else [each])
            if isinstance(target, ast.Name)
        }
        found += [(f"model.validation.{file.stem}", name) for name in sorted(names) if _BOUND.fullmatch(name)]
    return found


def _words_of(constant: str) -> tuple[str, str]:
    """Return the unit and the meaning that a constant's name has."""
    words = re.sub(r"_(MAX|MIN)(?=_|$)", "", constant).lower().split("_")
    unit = words[-1] if words[-1] in ("ms", "s", "bytes", "ppm", "percent") else ""
    return unit, f"`{'_'.join(words)}`"


def _amount(value: int, unit: str) -> str:
    if unit == "ms":
        return format_duration(value)
    if unit == "bytes" and value % (1 << 20) == 0:
        return f"{value >> 20} MiB"
    return f"{value} {unit}".strip()


def commands() -> Iterator[tuple[str, Any]]:
    """Return (words, command) of every command of the tree, sorted."""

    def below(command: Any, words: str) -> Iterator[tuple[str, Any]]:
        if hasattr(command, "commands"):
            for name, part in sorted(command.commands.items()):
                yield from below(part, f"{words} {name}")
        else:
            yield words, command

    for name in sorted(MOUNTS):
        yield from below(load(name), name)


def command_lines() -> Iterator[str]:
    for words, command in commands():
        options = [each for each in command.params if each.param_type_name == "option" and not each.hidden]
        usage = " ".join(_argument(each) for each in command.params if each.param_type_name == "argument")
        yield from (f"### rtolap {words}", f"`rtolap {words}{' ' if usage else ''}{usage}`", "")
        if not options:
            continue
        yield from ("| option | default | meaning |", "|---|---|---|")
        for option in options:
            names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
            yield f"| {names} | {_option_default(option)} | {_cell(option.help or '')} |"
        yield ""


def _argument(argument: Any) -> str:
    name = (argument.metavar or argument.name).upper()
    several = "…" if argument.nargs == -1 else ""
    return f"{name}{several}" if argument.required else f"[{name}{several}]"


def _option_default(option: Any) -> str:
    value = option.default
    if option.required:
        return "needed"
    if value is None or value is False or value == "" or callable(value) or value in ((), []):
        return ""
    return f"`{str(value).lower() if value is True else value}`"


def function_lines() -> Iterator[str]:
    yield from ("| of | |", "|---|---|")
    for of, names in (
        ("texts", function_names.TEXT_FUNCTIONS),
        ("numbers", function_names.NUMBER_FUNCTIONS),
        ("times", function_names.TIME_FUNCTIONS),
        ("choices and casts", function_names.CHOICES),
        ("aggregates", function_names.AGGREGATES),
        ("windows", function_names.WINDOW_FUNCTIONS),
        ("the session", function_names.SESSION_FUNCTIONS),
        ("sketches of [stored tables](sql/stored_tables.md#stored-tables)", function_names.SKETCH_FUNCTIONS),
        ("other spellings of these", other_spellings()),
    ):
        yield f"| {of} | {', '.join(f'`{name.upper()}`' for name in names)} |"


def other_spellings() -> tuple[str, ...]:
    """Return names that the parser takes for a function that is answered, and that no list of ours names."""
    listed = {row.name.upper() for row in function_table.ROWS}
    parser = RtolapSql.Parser if hasattr(RtolapSql, "Parser") else RtolapSql.parser_class
    known = {*parser.FUNCTIONS, *parser.FUNCTION_PARSERS} - listed - _OPERATORS
    return tuple(sorted(name.lower() for name in known if _is_answered(name)))


_OPERATORS = {"COLLATE", "EXISTS", "LIKE", "XOR"}  # the parser has them as functions too


def _is_answered(name: str) -> bool:
    for arguments in ("", "a", "a, 2", "a, 2, 3", "a, 'b', 'c', 'd'", "a, INTERVAL 1 DAY"):
        try:
            approve(sqlglot.parse_one(f"select {name}({arguments}) from t", read=RtolapSql))
        except (SqlglotError, RtolapError, ValueError, TypeError, AttributeError, IndexError):
            continue
        return True
    return False


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def page() -> str:
    return "\n".join(_page_lines()) + "\n"


def _page_lines() -> Iterable[str]:
    yield "# Reference"
    yield ""
    yield "`make reference` writes this page from the code, and a test holds it equal."
    yield ""
    yield "## Settings"
    yield "Every service reads them from the environment once, when it starts. An empty default is none."
    yield from settings_lines()
    yield ""
    yield "### Other variables"
    yield from other_lines()
    yield ""
    yield "## Definitions"
    yield "A key may stand within others (`.`), in each entry of a list (`[]`) or under free names (`{}`)."
    yield "Durations are written as `30s`, `10m`, `6h` or `7d`."
    for kind in KINDS:
        yield from ("", f"### {kind}")
        yield from definition_lines(kind)
    yield ""
    yield "## Limits"
    yield "What a definition may hold at most, unless it says otherwise."
    yield from limit_lines()
    yield ""
    yield "## Commands"
    yield "All of them have `--help`. An empty default is none, or off."
    yield ""
    yield from command_lines()


def sql_page() -> str:
    """Return docs/sql.md with the list of functions as the code has it."""
    before, _, rest = SQL_PAGE.read_text().partition(FUNCTIONS_BEGIN)
    _, _, after = rest.partition(FUNCTIONS_END)
    return f"{before}{FUNCTIONS_BEGIN}" + "\n".join(function_lines()) + f"\n{FUNCTIONS_END}{after}"


def main() -> None:
    PAGE.write_text(page())
    SQL_PAGE.write_text(sql_page())
    metric_reference.PAGE.write_text(metric_reference.metrics_page())
    dashboard.FILE.write_text(dashboard.dashboard_text())


if __name__ == "__main__":
    main()
