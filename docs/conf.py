"""The documentation site: ``python -m sphinx -W -c docs . build/site``, with the extra ``[docs]``.

Pages are plain Markdown, to be read on a code host as well. The source is the whole repository, so
that a link from docs/ to cluster-configs/ leads to the same page there and here. Nothing on the
site is fetched from elsewhere: formulas become MathML, which browsers draw by themselves.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging

import silchunk

project = "silchunk"
author = "the silchunk developers"
version = release = silchunk.__version__
language = "en"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "docs/index"
include_patterns = [
    "docs/**.md",
    "benchmarks/README.md",
    "cluster-configs/**README.md",
    "examples/README.md",
    "CHANGELOG.md",
]
templates_path = ["templates"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
# Shell and program output are no language; nor is every block of text to be guessed at.
highlight_language = "none"

# Docstrings name types and defaults in words.
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "inherited-members": True}
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
# `name` in a docstring is a link where there is such a name, and else stays as it is.
default_role = "py:obj"

# Types in words ("path", "n") are no references, though attributes may have such names.
suppress_warnings = ["ref.python"]

html_theme = "furo"
html_additional_pages = {"index": "first-page.html"}  # leads to docs/index.html
html_title = f"silchunk {version}"
html_math_renderer = "mathml"
html_copy_source = False
html_show_sourcelink = False


def _formula(translator: Any, node: nodes.math | nodes.math_block) -> None:
    block = isinstance(node, nodes.math_block)
    try:
        made = tex2mathml(node.astext(), as_block=block)
    except MathError as error:
        logging.getLogger(__name__).warning("formula: %s", error, location=node)
        made = ""
    # Wide formulas scroll by themselves, not with the page.
    style = "overflow: auto hidden; padding: 0.4em 0"
    translator.body.append(f'<div style="{style}">{made}</div>' if block else made)
    raise nodes.SkipNode


def _is_inherited(
    _app: Sphinx, _what: str, _name: str, member: Any, skip: bool, _options: Any
) -> bool | None:
    """Leave out what scikit-learn adds to an estimator: its own pages tell of it."""
    function = getattr(member, "fget", None) or member
    module = getattr(function, "__module__", None) or "silchunk"
    return True if skip or not module.startswith("silchunk") else None


def setup(app: Sphinx) -> dict[str, bool]:
    """Formulas as MathML, by docutils; members of our own only."""
    app.connect("autodoc-skip-member", _is_inherited)
    app.add_html_math_renderer("mathml", (_formula, None), (_formula, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
