"""The documentation: the site is built, links lead somewhere, pages do what they say."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from markdown_it import MarkdownIt
from test_docs import ROOT, blocks

import silchunk

DOCS = ROOT / "docs"
MARKDOWN = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "*/README.md", "cluster-configs/*/*.md")
    for path in ROOT.glob(pattern)
    if not any(part.startswith(".") or part == "build" for part in path.parts)
)
WORKED = ["tutorial", *(f"how-to/{path.stem}" for path in sorted(DOCS.glob("how-to/*.md")))]
SITE = ("sphinx", "myst_parser", "furo")


def run(*command, cwd):
    """What a command prints; its errors, if it fails."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path}
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def inlines(path):
    """The running text of a page, as tokens: no code blocks."""
    for token in MarkdownIt("commonmark").enable("table").parse(path.read_text()):
        yield token, token.children or []


def anchors(path):
    """Of the headings, as code hosts and the site form them."""
    found, heading = set(), False
    for token, children in inlines(path):
        if heading:
            text = "".join(child.content for child in children)
            found.add(re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-"))
        heading = token.type == "heading_open"
    return found


@pytest.mark.parametrize("page", MARKDOWN, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    lost = []
    for _, children in inlines(page):
        for child in children:
            link = unquote(child.attrGet("href") or "")
            if not link or re.match(r"\w+:", link):
                continue
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            if not target.exists() or (anchor and anchor not in anchors(target)):
                lost.append(link)
    assert not lost


class Resources(HTMLParser):
    """What a browser fetches to show a page."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        facts = dict(attrs)
        if tag in ("script", "img", "iframe", "source"):
            self.found.append(facts.get("src"))
        elif tag == "link" and facts.get("rel") != "canonical":
            self.found.append(facts.get("href"))


@pytest.mark.slow
@pytest.mark.skipif(
    not all(map(importlib.util.find_spec, SITE)), reason="the extra [docs] is not installed"
)
def test_the_site_is_built_without_warnings_and_fetches_nothing(tmp_path):
    site = tmp_path / "site"
    folders = ("-d", str(tmp_path / "doctrees"), "-c", str(DOCS), str(ROOT), str(site))
    run(sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", *folders, cwd=tmp_path)
    first = (site / "index.html").read_text()
    assert 'url=docs/index.html"' in first
    pages = sorted(site.rglob("*.html"))
    assert {site / path.relative_to(ROOT).with_suffix(".html") for path in DOCS.rglob("*.md")} < {
        *pages
    }
    for page in pages:
        resources = Resources()
        resources.feed(page.read_text())
        assert not [source for source in resources.found if source and "//" in source]
    assert "<math " in (site / "docs/mathematics.html").read_text()


def test_every_public_name_is_in_the_reference():
    told = re.findall(r"^\.\. auto\w+:: (\w+)$", (DOCS / "api.md").read_text(), flags=re.MULTILINE)
    assert sorted(told) == sorted(silchunk.__all__)


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.parametrize("page", WORKED)
def test_a_page_does_what_it_says(page, tmp_path):
    text = (DOCS / f"{page}.md").read_text()
    code = "".join(blocks("python", text))
    printed = run(sys.executable, "-c", code, cwd=tmp_path).splitlines()
    # Nothing that prints may stand without what it prints.
    lines = [line.strip() for line in code.splitlines() if line.strip().startswith("print(")]
    assert printed == [line.split("  # ")[1] for line in lines]
    output = [
        run("bash", "-c", line.removeprefix("$ "), cwd=tmp_path)
        for block in blocks("console", text)
        for line in block.splitlines()
    ]
    for shown in blocks("text", text):
        assert any(" ".join(shown.split()) in " ".join(told.split()) for told in output)


def test_examples_are_listed_with_all_that_there_are():
    table = (ROOT / "examples/README.md").read_text()
    listed = re.findall(r"^\| \[(\w+\.py)\]\(\1\) \|", table, flags=re.MULTILINE)
    assert sorted(listed) == sorted(path.name for path in ROOT.glob("examples/*.py"))


def test_compared_figures_stand_where_they_were_measured():
    measured = {
        line
        for name in ("README.md", "benchmarks/README.md")
        for block in blocks("text", (ROOT / name).read_text())
        for line in block.splitlines()
    }
    parts = re.split(r"```text\n(.*?)```", (DOCS / "comparison.md").read_text(), flags=re.DOTALL)
    shown = list(zip(parts[::2], parts[1::2], strict=False))
    assert len(shown) >= 5
    for before, block in shown:
        paragraph = before.strip().split("\n\n")[-1]
        script = re.match(r"`python (benchmarks/\w+\.py)", paragraph)
        assert script, f"no command above {block!r}"
        assert (ROOT / script[1]).exists()
        assert measured.issuperset(block.splitlines())
