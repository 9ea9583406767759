"""Hooks of `make docs`: pages that are only listed in the repository, and links that lead out of `docs/`.

A link to a file of the repository that is no page becomes its text: the site has no copy of the code. A file
that is not there ends the build.
"""

from __future__ import annotations

import os.path
import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_LINK = re.compile(r"\[([^\]\[]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
_DECISIONS = "decisions/index.md"
_LISTED = {"Decisions": "decisions", "Modules": "modules"}


def on_config(config: Any) -> Any:
    """Append the pages of folders that the navigation does not name one by one."""
    docs = Path(config.docs_dir)
    for title, folder in _LISTED.items():
        pages = sorted(file.relative_to(docs).as_posix() for file in (docs / folder).glob("*.md"))
        if folder == "decisions":
            pages.insert(0, _DECISIONS)
        config.nav.append({title: pages})
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the list of decisions."""
    rows = []
    for file in sorted(Path(config.docs_dir, "decisions").glob("*.md")):
        title = file.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")
        rows.append(f"- [{title}]({file.name})")
    content = "\n".join(["# Decisions", "", "Why it is so, and what was rejected.", "", *rows, ""])
    files.append(File.generated(config, _DECISIONS, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: Any, files: Files) -> str:
    """Lead links to folders to their first page, and make text of those to what is no page."""
    here = Path(page.file.src_uri).parent
    docs = Path(config.docs_dir)

    def replaced(match: re.Match[str]) -> str:
        text, target = match[1], match[2]
        if "://" in target or target.startswith("mailto:"):
            return match[0]
        path = Path(os.path.normpath(docs / here / target))
        if not path.exists():
            return match[0]  # the strict build names it
        if path.is_relative_to(docs):
            return f"[{text}]({target.rstrip('/')}/index.md)" if path == docs / "decisions" else match[0]
        if not path.is_relative_to(docs.parent):
            raise PluginError(f"{page.file.src_uri}: {target} leads out of the repository")
        name = path.relative_to(docs.parent).as_posix()
        return text if name in text.strip("`") else f"{text} (`{name}`)"

    return _LINK.sub(replaced, markdown)
