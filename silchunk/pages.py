"""Pages of HTML that need no other file: templates, and figures drawn into them."""

from __future__ import annotations

import hashlib
import io
import os
import re
import warnings
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from silchunk import disk
from silchunk.errors import InputNotFoundError, OutputExistsError, SilchunkError

if TYPE_CHECKING:
    import jinja2
    from markupsafe import Markup
    from matplotlib.figure import Figure

# Drawn in this colour, a thing has the colour of the page's text, in the light and in the dark.
INK = "#000000"
# What no page may contain: control characters, and halves of characters.
UNWRITABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class MissingExtraError(SilchunkError, ImportError):
    """A package that only some functions need is not installed; the message says how to."""


def extra(module: str) -> Any:
    """A module of the packages that pictures and pages need.

    Raises
    ------
    MissingExtraError
        The package is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"pictures and pages need {module.partition('.')[0]}, which is not installed. "
            'Install it with: pip install "silchunk[plot]"'
        ) from error


def check_installed() -> None:
    """Raise before any work if what a page needs is not installed.

    Raises
    ------
    MissingExtraError
    """
    for module in ("jinja2", "matplotlib"):
        extra(module)


def render(template: str, **facts: Any) -> str:
    """A page from a template of this package's; all text in ``facts`` is escaped.

    Parameters
    ----------
    template : str
        File name below ``templates``.
    **facts
        What the template names. One that it names and is not given is an error.

    Raises
    ------
    MissingExtraError
        jinja2 is not installed.
    """
    page = _templates().get_template(template).render(**facts)
    return UNWRITABLE.sub("\N{REPLACEMENT CHARACTER}", page)


@cache
def _templates() -> jinja2.Environment:
    library = extra("jinja2")
    environment: jinja2.Environment = library.Environment(
        loader=library.PackageLoader("silchunk"),
        autoescape=True,
        undefined=library.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment


def write_new(path: str | os.PathLike[str], page: str) -> None:
    """Write a page to a new file, which appears whole or not at all.

    Raises
    ------
    OutputExistsError
        ``path`` exists; it is left as it is.
    InputNotFoundError
        There is no folder to write it to.
    DiskFullError
    """
    target, content = Path(path), page.encode()
    if os.path.lexists(target):
        raise OutputExistsError(f"{target} exists already and is left as it is; name another file.")
    if not target.parent.is_dir():
        raise InputNotFoundError(
            f"there is no folder {str(target.parent)!r} to write {target.name} to."
        )
    disk.write_new(target, lambda stream: stream.write(content))


def svg(figure: Figure, alt: str = "") -> Markup:
    """A figure as an element of a page; the figure is closed.

    Text stays text, and what is drawn in black takes the colour of the page's text. The element
    names nothing outside itself, and its ids do not clash with those of other figures.

    Parameters
    ----------
    figure : matplotlib Figure
    alt : str
        What it shows, for those who cannot see it.

    Raises
    ------
    MissingExtraError
        matplotlib or jinja2 is not installed.
    """
    matplotlib, markupsafe = extra("matplotlib"), extra("markupsafe")
    extra("matplotlib.backends.backend_svg")
    stream = io.StringIO()
    with (
        matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "silchunk"}),
        warnings.catch_warnings(),
    ):
        # The reader's browser has letters that the font text is measured with has not.
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    _close(figure)
    element: Markup = markupsafe.Markup(_element(stream.getvalue(), alt))
    return element


def _close(figure: Figure) -> None:
    """Forget a figure, where pyplot knows it."""
    if getattr(figure, "number", None) is not None:
        extra("matplotlib.pyplot").close(figure)


def _element(document: str, alt: str) -> str:
    """What a page needs of an SVG document."""
    root = ElementTree.fromstring(UNWRITABLE.sub("\N{REPLACEMENT CHARACTER}", document))
    root.attrib = {"viewBox": root.attrib["viewBox"], "role": "img", "aria-label": alt}
    for parent in list(root.iter()):
        for child in list(parent):
            if _name(child.tag) in ("metadata", "style"):
                parent.remove(child)
    for element in root.iter():
        element.tag = _name(element.tag)
        element.attrib = {_name(name): value for name, value in element.attrib.items()}
        if "style" in element.attrib:
            # Letters are those of the page.
            style = re.sub(r"font-family: [^;]*;? ?", "", element.attrib["style"])
            element.attrib["style"] = style.replace(INK, "currentColor")
    _own_ids(root)
    return ElementTree.tostring(root, encoding="unicode")


def _name(qualified: str) -> str:
    """A name without its namespace, which pages do not need."""
    return qualified.rpartition("}")[2]


def _own_ids(root: ElementTree.Element) -> None:
    """Drop ids that nothing refers to; give the others names of this figure alone."""
    refers = re.compile(r"(?<=url\(#)[^)]+|(?<=^#).+")
    values = [value for element in root.iter() for value in element.attrib.values()]
    used = {name for value in values for name in refers.findall(value)}
    digest = hashlib.sha256(ElementTree.tostring(root)).hexdigest()
    prefix = f"f{digest[:8]}-"
    for element in root.iter():
        own = element.attrib.pop("id", None)
        for name in ("href", "clip-path", "style", "mask"):
            if name in element.attrib:
                element.attrib[name] = refers.sub(
                    lambda match: prefix + match[0], element.attrib[name]
                )
        if own in used:
            element.attrib["id"] = f"{prefix}{own}"
