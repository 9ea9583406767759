"""`make docs`: the documentation as a site, whose links all lead somewhere, and which can be searched."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import PROJECT

PARTS = ("docs", "scripts/site.py", "mkdocs.yml")
WRONG = ("[one](gone.md)", "[two](sql.md#nowhere)", "[three](../plugins/missing.py)")
FETCHED = re.compile(r"""<(?:script|link|img)[^>]+(?:src|href)=["']?https?://""")


def build(project: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=project,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(PROJECT, folder)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def test_every_page_is_on_the_site_and_found_by_its_words(site: Path) -> None:
    index: dict[str, Any] = json.loads((site / "search" / "search_index.json").read_text())
    found = {entry["location"].partition("#")[0] for entry in index["docs"]}
    for page in sorted((PROJECT / "docs").rglob("*.md")):
        at = page.with_name("index.html") if page.name == "README.md" else page.with_suffix(".html")
        assert at.relative_to(PROJECT / "docs").as_posix() in found
    texts = {
        entry["location"].partition("#")[0] for entry in index["docs"] if "rtolap_backfill" in entry["text"]
    }
    assert "airflow.html" in texts


def test_a_page_fetches_nothing_from_elsewhere(site: Path) -> None:
    for page in sorted(site.rglob("*.html")):
        links = [link for link in FETCHED.findall(page.read_text()) if "canonical" not in link]
        assert links == [], page


def test_links_that_lead_nowhere_end_the_build_and_each_is_named(tmp_path: Path) -> None:
    """One build is told of all of them: it takes ten seconds."""
    for part in PARTS:
        source, target = PROJECT / part, tmp_path / "project" / part
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
    for name in ("CONTRIBUTING.md", ".importlinter"):
        shutil.copy(PROJECT / name, tmp_path / "project" / name)
    for folder in ("plugins", "include", "tests"):
        (tmp_path / "project" / folder).symlink_to(PROJECT / folder)
    glossary = tmp_path / "project" / "docs" / "glossary.md"
    glossary.write_text("\n\n".join([glossary.read_text(), *WRONG]))
    done = build(tmp_path / "project", tmp_path / "site")
    assert done.returncode != 0
    said = done.stdout + done.stderr
    warnings = [line for line in said.splitlines() if line.startswith("WARNING")]
    assert len(warnings) == len(WRONG), said[-3000:]
    for target in ("gone.md", "nowhere", "missing.py"):
        assert any("glossary.md" in line and target in line for line in warnings), said[-3000:]
    assert f"Aborted with {len(WRONG)} warnings" in said, "each of them alone would have ended it"
