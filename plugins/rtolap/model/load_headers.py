"""Headers of a load that a definition may set, by target, and those that belong to the loader. Pure.

The others are refused: a header that nobody has looked at may change what a label stands for, or which rows
a load counts.
"""

from __future__ import annotations

import re

from rtolap.model.loader import LoaderSink, LoaderTarget
from rtolap.model.problems import Problem

_EVERYWHERE = frozenset(("where", "partitions", "timezone"))
_UPDATES = frozenset(("partial_columns", "unique_key_update_mode", "partial_update_new_key_behavior"))

ALLOWED: dict[LoaderTarget, frozenset[str]] = {
    "rtolap": _EVERYWHERE | _UPDATES | {"hidden_columns", "negative", "comment"},
    "doris": _EVERYWHERE
    | _UPDATES
    | {
        "cloud_cluster",
        "comment",
        "compute_group",
        "exec_mem_limit",
        "hidden_columns",
        "load_stream_per_node",
        "load_to_single_tablet",
        "memtable_on_sink_node",
        "negative",
        "send_batch_parallelism",
        "temporary_partitions",
    },
    "starrocks": _EVERYWHERE
    | {
        "ignore_json_size",
        "load_mem_limit",
        "log_rejected_record_num",
        "partial_update",
        "partial_update_mode",
        "temporary_partitions",
        "warehouse",
    },
}

_LABEL = "the label ties the load to its offsets"
_FRAMING = "the loader frames the request"
_FORMAT = "it follows from `sink.format`"
_TRANSACTION = "it follows from `sink.two_phase`"
OWNED: dict[str, str] = {
    "label": _LABEL,
    "keep_label": _LABEL,
    "not_after_ms": _LABEL,
    "group_commit": "a load without a label of its own could not be found again",
    "authorization": "it follows from `sink.user` and `sink.password_file`",
    "token": "it follows from `sink.user` and `sink.password_file`",
    "db": "it follows from `database`",
    "table": "it follows from `table`",
    "columns": "it follows from `columns` and the table",
    "timeout": "it follows from `sink.timeout`",
    "idle_transaction_timeout": "it follows from `sink.timeout`",
    "prepared_timeout": "it follows from `sink.timeout`",
    "max_filter_ratio": "it follows from `rejects.tolerance_percent`",
    "strict_mode": "a value that does not fit is refused, never made null",
    "function_column.sequence_col": "declare `sink.sequence_column`",
    "merge_condition": "declare `sink.sequence_column`",
    "merge_type": "declare `sink.merge`",
    "delete": "declare `sink.merge`",
    "redirect-policy": "declare `sink.backends.redirect_policy`",
    **dict.fromkeys(
        ("host", "expect", "connection", "content-length", "content-type", "transfer-encoding"), _FRAMING
    ),
    **dict.fromkeys(
        ("two_phase_commit", "txn_id", "txn_operation", "transaction_type", "channel_num", "channel_id"),
        _TRANSACTION,
    ),
    **dict.fromkeys(
        (
            "format",
            "compress_type",
            "compression",
            "column_separator",
            "line_delimiter",
            "row_delimiter",
            "enclose",
            "escape",
            "skip_lines",
            "skip_header",
            "trim_double_quotes",
            "trim_space",
            "empty_field_as_null",
            "jsonpaths",
            "json_root",
            "strip_outer_array",
            "read_json_by_line",
            "num_as_string",
            "fuzzy_parse",
        ),
        _FORMAT,
    ),
}

_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_COLUMN = re.compile(r"[^\W\d]\w*")


def is_header_value(text: str) -> bool:
    """Return True if a header can carry the text: printable ASCII in one line."""
    return _VALUE.fullmatch(text) is not None


def sink_header_problems(sink: LoaderSink) -> list[Problem]:
    """Return what is wrong with the headers of a sink, and with what becomes headers of its loads."""
    allowed = ALLOWED[sink.target]
    found: list[Problem] = []
    for name, value in sink.headers.items():
        at = ("sink", "headers", name)
        if (owner := OWNED.get(name.lower())) is not None:
            found.append(Problem(at, f"a header that belongs to the loader: {owner}", found=repr(name)))
        elif name not in allowed:
            choice = ", ".join(sorted(allowed))
            found.append(
                Problem(at, f"no header that may be set for {sink.target}", expected=choice, found=repr(name))
            )
        if not is_header_value(value):
            found.append(_no_value(at, value))
    return found + _merge_problems(sink) + _sequence_problems(sink)


def _merge_problems(sink: LoaderSink) -> list[Problem]:
    at, merge = ("sink", "merge"), sink.merge
    found = []
    if (merge.type == "merge") != (merge.delete is not None):
        expected = "a condition with type merge, and only there"
        found.append(Problem((*at, "delete"), "not a condition", expected=expected, found=repr(merge.delete)))
    elif merge.delete is not None and not is_header_value(merge.delete):
        found.append(_no_value((*at, "delete"), merge.delete))
    if sink.target == "starrocks" and merge.type != "append":
        expected = "append; a column `__op` with a `type` deletes rows where it is 1"
        found.append(
            Problem((*at, "type"), "StarRocks merges otherwise", expected=expected, found=merge.type)
        )
    return found


def _sequence_problems(sink: LoaderSink) -> list[Problem]:
    name = sink.sequence_column
    if name is None or (_COLUMN.fullmatch(name) and name.isascii()):
        return []
    at = ("sink", "sequence_column")
    return [Problem(at, "not the name of a column", expected="letters, digits, _", found=repr(name))]


def _no_value(at: tuple[str | int, ...], found: str) -> Problem:
    return Problem(at, "no value of a header", expected="printable ASCII, in one line", found=repr(found))


def declared_headers(sink: LoaderSink) -> dict[str, str]:
    """Return the headers of each load that the definition of the sink asks for."""
    headers = dict(sink.headers)
    if sink.sequence_column is not None:
        name = "merge_condition" if sink.target == "starrocks" else "function_column.sequence_col"
        headers[name] = sink.sequence_column
    if sink.merge.type != "append":
        headers["merge_type"] = sink.merge.type.upper()
    if sink.merge.delete is not None:
        headers["delete"] = sink.merge.delete
    if sink.backends.redirect_policy is not None:
        headers["redirect-policy"] = sink.backends.redirect_policy
    return headers
