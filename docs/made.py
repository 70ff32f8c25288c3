"""What of the site is made as it is built: help of commands, pages from elsewhere.

`python docs/made.py` makes the tutorial's notebook, which stands beside it.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import textwrap
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from sally_anne.cli import COMMANDS, main

ROOT = Path(__file__).parents[1]
TINY = "src/sally_anne/models/tiny"
# Pages of the site whose text stands elsewhere in the clone.
PAGES = {"contributing.md": "CONTRIBUTING.md", "changes.md": "CHANGELOG.md"} | {
    f"cards/{card.parent.name}.md": f"{TINY}/{card.parent.name}/README.md"
    for card in ROOT.glob(f"{TINY}/*/README.md")
}
FETCHED = re.compile(
    r"<(?:link|script|img|iframe|source|video)\b[^>]*(?:href|src)=\"?(?:https?:)?//"
)
# Room for tables of figures, help texts and pictures.
STYLE = """
.md-grid { max-width: 68rem; }
.md-typeset table:not([class]) { font-size: .68rem; }
.md-typeset table:not([class]) th, .md-typeset table:not([class]) td { padding: .5em .8em; }
.md-typeset pre > code { font-size: .72em; line-height: 1.35; }
[data-md-color-scheme="slate"] .md-typeset img { background: white; border-radius: .2rem; }
.md-typeset td:first-child code { white-space: nowrap; }
"""
# What runs of a page, and its links to others, which a notebook has not beside it.
RUNS = re.compile(r"^```(python|sh)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"!?\[([^\]]+)\]\([^)]+\)")
# Roles of another markup, in docstrings.
ROLE = re.compile(r":(?:class|data|func|meth|mod):(?=<code>)")


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the pages whose text stands elsewhere."""
    for uri, path in PAGES.items():
        files.append(File.generated(config, uri, abs_src_path=str(ROOT / path)))
    files.append(File.generated(config, "commands.md", content=commands()))


def on_page_markdown(markdown: str, **_: object) -> str:
    """Links that lead somewhere in the clone, led to the same on the site."""
    for uri, path in PAGES.items():
        markdown = markdown.replace(f"](../{path}", f"]({uri}")
    return markdown.replace("](docs/", "](")


def on_page_content(html: str, **_: object) -> str:
    """What docstrings refer to, by its name alone."""
    return ROLE.sub("", html)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """A page with its style; PluginError where it would fetch anything from elsewhere."""
    if found := FETCHED.search(output):
        raise PluginError(f"{page.file.src_uri} fetches from elsewhere: {found[0]}")
    return output.replace("</head>", f"<style>{STYLE}</style></head>", 1)


def notebook(page: str) -> dict[str, Any]:
    """A page as a notebook: a cell for each block that runs, those of the shell by ``%%bash``."""
    cells: list[dict[str, Any]] = []
    end = 0
    for block in RUNS.finditer(page):
        cells += _told(page[end : block.start()])
        source = ("%%bash\n" if block[1] == "sh" else "") + block[2].rstrip("\n")
        code = {"cell_type": "code", "metadata": {}, "execution_count": None, "outputs": []}
        cells.append(code | {"source": source})
        end = block.end()
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    cells += _told(page[end:])
    about: dict[str, Any] = {"nbformat": 4, "nbformat_minor": 4}
    return about | {"metadata": {"kernelspec": kernel}, "cells": cells}


def _told(text: str) -> list[dict[str, Any]]:
    source = LINK.sub(r"\1", text).strip()
    return [{"cell_type": "markdown", "metadata": {}, "source": source}] if source else []


def commands() -> str:
    """A section for each command, with what its ``--help`` prints."""
    parts = ["# Commands\n", "What `sally-anne NAME --help` prints.\n"]
    for name, command in COMMANDS.items():
        parts += [f"## {name}\n", f"{command.about[0].upper()}{command.about[1:]}.\n"]
        if name == "lm-eval":  # another project's options
            parts.append("It takes lm-eval's own options, and knows our model and tasks.\n")
        else:
            parts.append(f"```text\n{said_help(name)}```\n")
    return "\n".join(parts)


def said_help(name: str) -> str:
    """The help of a command, 88 columns wide."""
    os.environ["COLUMNS"] = "88"
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
        main([name, "--help"])
    lines = (
        textwrap.fill(line, 88) if len(line) > 88 else line for line in said.getvalue().split("\n")
    )
    return "\n".join(lines)


if __name__ == "__main__":
    made = notebook((ROOT / "docs/tutorial.md").read_text(encoding="utf-8"))
    text = json.dumps(made, indent=1, ensure_ascii=False)
    (ROOT / "docs/tutorial.ipynb").write_text(f"{text}\n", encoding="utf-8")
