"""Tests of what helps people: licence, recipes, change log, checks before a commit, links of the pages."""

from __future__ import annotations

import configparser
import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.pages.texts import ALL_PAGES
from tests.support.paths import PLUGINS, PROJECT

CONTRIBUTING = (PROJECT / "CONTRIBUTING.md").read_text()
RECIPES = re.findall(r"^### (Add [^\n]*)\n(.*?)(?=^##)", CONTRIBUTING, re.S | re.M)


def _hooks() -> dict[str, dict[str, Any]]:
    (own,) = yaml.safe_load((PROJECT / ".pre-commit-config.yaml").read_text())["repos"]
    assert own["repo"] == "local"
    return {hook["entry"]: hook for hook in own["hooks"]}


def _lint_commands() -> list[str]:
    recipe = re.search(r"^lint: .*\n((?:\t.*\n)+)", (PROJECT / "Makefile").read_text(), re.M)
    assert recipe is not None
    return [line.strip().lstrip("@") for line in recipe[1].splitlines()]


def test_before_a_commit_the_same_is_checked_as_by_make_lint() -> None:
    checked = {
        command.replace("$(BIN)", ".venv/bin").replace("$(MAKE)", "make") for command in _lint_commands()
    }
    assert checked == set(_hooks())


def test_hooks_run_the_projects_own_tools_over_all_files() -> None:
    for hook in _hooks().values():  # of files that are named, the tools would check excluded ones, too
        assert (hook["language"], hook["pass_filenames"]) == ("system", False)


MAKE = """#!/bin/sh
case "$*" in
*lint*) echo "what the linter says"; exit $LINT ;;
*test*) echo "=== 3 passed in 2.00s ==="; exit $TEST ;;
esac
"""


@pytest.mark.parametrize(("lint", "test"), [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_ci_checks_what_make_lint_and_make_test_check(tmp_path: Path, lint: int, test: int) -> None:
    """Both at once: a check fails where one of them does, says why, and ends with the line of pytest."""
    run = (PROJECT / ".ci" / "run").read_text()
    (tmp_path / "make").write_text(MAKE)
    (tmp_path / "make").chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", "set -euo pipefail\n" + run[run.index("make setup\n") :]],
        env={**os.environ, "PATH": path, "LINT": str(lint), "TEST": str(test)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode == 0) == (lint == test == 0), done.stdout + done.stderr
    assert ("what the linter says" in done.stdout) == bool(lint)
    if lint or test:
        assert done.stdout.splitlines()[-1] == "=== 3 passed in 2.00s ==="


def test_the_licence_is_whole_and_the_package_names_it() -> None:
    text = (PROJECT / "LICENSE").read_text()
    assert "Apache License\n                           Version 2.0, January 2004" in text
    assert all(f"\n   {number}. " in text for number in range(1, 10))
    assert "END OF TERMS AND CONDITIONS" in text
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    assert (project["license"], project["license-files"]) == ("Apache-2.0", ["LICENSE"])


def test_the_change_log_keeps_its_form() -> None:
    text = (PROJECT / "CHANGELOG.md").read_text()
    versions = re.findall(r"^## (.*)$", text, re.M)
    assert versions[0] == "[Unreleased]"
    assert all(re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", each) for each in versions[1:])
    kinds = set(re.findall(r"^### (.*)$", text, re.M))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_editors_indent_python_as_the_formatter_does() -> None:
    parser = configparser.ConfigParser()
    parser.read_string("[root]\n" + (PROJECT / ".editorconfig").read_text())
    ruff = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["ruff"]
    assert int(parser["*.py"]["max_line_length"]) == ruff["line-length"]
    assert (parser["*"]["indent_style"], parser["*"]["indent_size"]) == ("space", "4")


def test_there_is_a_recipe_for_each_thing_that_is_added_often() -> None:
    added = {title.removeprefix("Add a ").removeprefix("Add an ").split(" of ")[0] for title, _ in RECIPES}
    assert added == {"measure", "planner", "property", "command", "SQL function", "listener"}


@pytest.mark.parametrize(("title", "recipe"), RECIPES, ids=[title for title, _ in RECIPES])
def test_a_recipe_names_files_that_exist_its_contract_and_the_command_that_shows_it(
    title: str, recipe: str
) -> None:
    assert "Contract suite: " in recipe
    assert "Shown by: " in recipe
    assert "Docs: " in recipe
    named = set(re.findall(r"`([\w./]+/[\w./]*)`", recipe))
    assert named or "measure" in title
    missing = [
        name for name in named if not any((under / name).exists() for under in (PLUGINS / "rtolap", PROJECT))
    ]
    assert not missing, f"{title}: {missing}"


def test_templates_ask_for_what_a_mender_needs() -> None:
    folder = PROJECT / ".github"
    for template in sorted((folder / "ISSUE_TEMPLATE").glob("*.md")):
        head = template.read_text().split("---")[1]
        assert set(yaml.safe_load(head)) == {"name", "about", "labels"}, template.name
    assert "make lint" in (folder / "pull_request_template.md").read_text()
    assert "rtolap --version" in (folder / "ISSUE_TEMPLATE" / "wrong_answer.md").read_text()


def linked(page: Path) -> list[tuple[str, str]]:
    """Return (file, anchor) of each link of the page to a file of this project."""
    return [
        (file, anchor)
        for file, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", page.read_text())
        if not re.match(r"[a-z]+:", file)
    ]


def anchors(page: Path) -> set[str]:
    """What a heading is called in a link, as GitHub makes it."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M)
    return {
        re.sub(r"[^\w\- ]", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).strip().lower()).replace(
            " ", "-"
        )
        for heading in re.findall(r"^#+ (.*)$", text, re.M)
    }


@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_every_link_of_a_page_leads_to_a_file_and_a_heading(page: Path) -> None:
    broken = []
    for file, anchor in linked(page):
        target = (page.parent / file).resolve() if file else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            broken.append(f"{file}#{anchor}")
    assert not broken
