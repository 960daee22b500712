"""Configures Sphinx for `make docs`: a site of the Markdown pages and the docstrings, built without a network."""

from __future__ import annotations

import re
from importlib import import_module, metadata
from typing import Any, Final

import attrs
from sphinx.application import Sphinx
from sphinx.util.logging import getLogger

project = "market_index"
author = "The market_index maintainers"
release = metadata.version("market-index")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]

# Anchors of headings are those of code hosts, so that a link to one works in both places.
myst_heading_anchors = 4
highlight_language = "none"
# An example ends with an empty line, because the test of the examples needs the end of its output.
highlight_options = {"python": {"stripnl": True}}

# Of an example with prompts, only what a reader types is copied, without the prompts.
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True

html_theme = "furo"
html_title = f"market_index {release}"
html_copy_source = False
html_show_copyright = False
html_static_path = ["_static"]
html_css_files = ["site.css"]

# In docstrings `name` is a name in code, as in Markdown.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
add_module_names = False

# Names of other packages in signatures have no link: their documentation is on other hosts, which a build does not use.
nitpick_ignore_regex = [
    (r"py:.*", r"(array|collections|datetime|decimal|enum|fractions|os|threading|typing|types)\..*"),
    (r"py:.*", r"(cattrs|starlette|hypothesis)\..*"),
    (r"py:.*", r"market_index\..*\._[A-Z]"),  # a type variable occurs only in signatures
    (r"py:class", r"market_index\.chunked\..*"),  # the base class of Levels and MarketIndex
    (r"py:class", r"market_index_feeds\.(book_lines|source)\..*"),  # for those who add a medium
    (r"py:class", r"Exchange"),  # market_index_feeds/kupo/exchanges.py says how to add one
    (r"py:class", r"market_index_http\.(app|routes)\..*"),  # private classes in signatures of `create_app`
]

LOG: Final = getLogger(__name__)

PACKAGES: Final = tuple(
    map(
        import_module,
        (
            "market_index",
            "market_index.display",
            "market_index.wire",
            "market_index.strategies",
            "market_index.stateful",
            "market_index_feeds",
            "market_index_http",
            "market_index_http.stream",
            "market_index_http.operating",
        ),
    )
)

OUTSIDE: Final = re.compile(r"\[[^\]]+\]\(\.\./([^)]+)\)")
"""Matches a link to a file of the project that is not a page."""

SECTIONS: Final = {"Args:", "Raises:"}
"""The headings of sections in docstrings."""


def public_names() -> dict[str, str]:
    """Return the documented name of each public class, by the name of its definition."""
    return {
        f"{getattr(package, name).__module__}.{name}": f"{package.__name__}.{name}"
        for package in PACKAGES
        for name in package.__all__
        if isinstance(getattr(package, name), type)
    }


def replace_outside_links(_: Sphinx, page: str, source: list[str]) -> None:
    """Replace each link to a file outside the pages by its path, because the site does not contain the file."""
    if "/" not in page:
        source[0] = OUTSIDE.sub(r"`\1`", source[0])


def resolve_public_name(app: Sphinx, env: Any, node: Any, content: Any) -> Any:
    """Return the link to a class that a signature names by its defining module."""
    name = public_names().get(node.get("reftarget", ""))
    if name is None:
        return None
    return env.domains.python_domain.resolve_xref(env, node["refdoc"], app.builder, "class", name, node, content)


def warn_of_missing_names(_: Sphinx, env: Any) -> None:
    """Warn of each public name that is on no page."""
    documented = env.domains.python_domain.objects
    for package in PACKAGES:
        for name in package.__all__:
            if f"{package.__name__}.{name}" not in documented:
                LOG.warning("%s.%s is public, and must be on a page", package.__name__, name)


def show_defaults(_: Sphinx, __: str, ___: str, of: Any, ____: Any, signature: str, returned: str) -> tuple[str, str]:
    """Show the defaults of an attrs class instead of the code that attrs generates for them."""
    if signature and "attr_dict" in signature:
        fields = attrs.fields_dict(of)
        signature = re.sub(r"attr_dict\['(\w+)'\]\.default", lambda name: repr(fields[name[1]].default), signature)
    return signature, returned


def list_sections(_: Sphinx, __: str, ___: str, ____: Any, _____: Any, lines: list[str]) -> None:
    """Make a list of each section of a docstring ("Args:", "Raises:"), whose lines would be one paragraph otherwise."""
    listed: list[str] = []
    is_section = False
    for line in lines:
        is_section = line in SECTIONS or (is_section and line.startswith("    "))
        if is_section and line in SECTIONS:
            listed += [line, ""]
        else:
            listed.append(re.sub("^    (?=[^ ])", "- ", line) if is_section else line)
    lines[:] = listed


def setup(app: Sphinx) -> None:
    """Connect the functions above to the events of Sphinx."""
    app.connect("source-read", replace_outside_links)
    app.connect("missing-reference", resolve_public_name)
    app.connect("autodoc-process-signature", show_defaults)
    app.connect("autodoc-process-docstring", list_sections)
    app.connect("env-check-consistency", warn_of_missing_names)
