"""Pages say of settings, definitions, limits, commands and functions what the code has."""

from __future__ import annotations

import re

from pydantic_core import PydanticUndefined
from rtolap.base.settings import Settings
from rtolap.servers.metrics_server import CONNECTIONS_MAX, CONNECTIONS_PER_ADDRESS_MAX, REQUESTS_MAX

from tests.support.pages import metric_reference
from tests.support.pages.texts import text_of
from tests.support.reference import (
    LIMITS,
    OTHER_VARIABLES,
    PAGE,
    PRODUCT,
    ROOT,
    SQL_PAGE,
    bounds_in_code,
    commands,
    page,
    sql_page,
    variables_in,
)

OF_SETTINGS = {f"RTOLAP_{name.upper()}" for name in Settings.model_fields}
TOLD = "write it again with `make reference`"


def test_the_page_of_settings_definitions_limits_and_commands_is_that_of_the_code() -> None:
    assert PAGE.read_text() == page(), TOLD


def test_the_list_of_functions_is_that_of_the_code() -> None:
    assert SQL_PAGE.read_text() == sql_page(), TOLD


def test_the_list_of_metrics_is_that_of_the_code() -> None:
    assert metric_reference.PAGE.read_text() == metric_reference.metrics_page(), TOLD


def test_every_setting_and_option_says_what_it_means() -> None:
    silent = [name for name, field in Settings.model_fields.items() if not field.description]
    silent += [
        f"rtolap {words} {option.opts[0]}"
        for words, command in commands()
        for option in command.params
        if option.param_type_name == "option" and not option.hidden and not option.help
    ]
    assert silent == []


def test_every_variable_that_the_product_reads_is_documented() -> None:
    assert variables_in(*PRODUCT) <= OF_SETTINGS | set(OTHER_VARIABLES)


def test_every_variable_that_a_page_names_is_read_somewhere() -> None:
    read = OF_SETTINGS | variables_in(*PRODUCT, "tests", "Makefile")
    named = {
        name
        for file in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))
        for name in re.findall(r"\bRTOLAP_[A-Z0-9_]*[A-Z0-9]\b", file.read_text())
    }
    assert named - read == set()
    assert set(OTHER_VARIABLES) <= read


def test_defaults_on_the_page_of_operations_are_those_of_the_code() -> None:
    wrong, compared = [], 0
    for line in text_of("operations").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        names = re.findall(r"`RTOLAP_([A-Z0-9_]+)`", cells[0])
        told = re.findall(r"`([^`]*)`", cells[1]) if len(cells) > 2 else []
        if not names or len(names) != len(told):
            continue
        for name, shown in zip(names, told, strict=True):
            field = Settings.model_fields.get(name.lower())
            if field is None or field.default in (None, "", PydanticUndefined):  # words say what holds then
                continue
            compared += 1
            if str(field.default).removesuffix(".0").lower() != shown.removesuffix(".0").lower():
                wrong.append(f"RTOLAP_{name}: {shown} for {field.default}")
    assert wrong == []
    assert compared > 20


def test_bounds_of_pages_of_metrics_are_those_of_the_code() -> None:
    told = text_of("operations").replace("\n", " ")
    bounds = f"{CONNECTIONS_MAX} connections, {CONNECTIONS_PER_ADDRESS_MAX} of an address and {REQUESTS_MAX}"
    assert f"at most {bounds} requests" in told


def test_the_page_says_when_a_window_that_was_rejected_ends() -> None:
    gate = (ROOT / "dags" / "watermark_gate.py").read_text()
    (days,) = re.findall(r"timeout=timedelta\(days=(\d+)\)", gate)
    page_of_airflow = text_of("airflow")
    after = page_of_airflow.partition("*Reject* keeps the window waiting")[2]
    assert f"fails after {days} days" in after[:200]


def test_the_bounds_that_have_words_are_there() -> None:
    named = {(module, constant) for module, constant, _, _ in LIMITS if module.startswith("model.validation")}
    assert named <= set(bounds_in_code())
