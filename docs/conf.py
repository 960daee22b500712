"""How the pages become a site, by `make docs`: of plain Markdown and of docstrings, without any network."""

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
extensions = ["myst_parser", "sphinx.ext.autodoc"]

# As a code host makes them of headings, so that a link to one works in both places.
myst_heading_anchors = 4
highlight_language = "none"
# An example ends with an empty line, so that it is known where its output ends.
highlight_options = {"python": {"stripnl": True}}

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

# Whatever is not ours is named in signatures and linked nowhere: where it is told of is on other hosts, which a build
# does not ask.
nitpick_ignore_regex = [
    (r"py:.*", r"(array|collections|datetime|decimal|enum|fractions|os|typing|types)\..*"),
    (r"py:.*", r"(starlette|hypothesis)\..*"),
    (r"py:.*", r"market_index\..*\._[A-Z]"),  # a type variable is named in its signature alone
    (r"py:class", r"market_index\.chunked\..*"),  # the base class of Levels and MarketIndex
    (r"py:class", r"market_index_feeds\.(line_content|line_source|medium)\..*"),  # for those who add a medium
]

LOG: Final = getLogger(__name__)

PACKAGES: Final = tuple(
    map(
        import_module,
        (
            "market_index",
            "market_index.wire",
            "market_index.strategies",
            "market_index.stateful",
            "market_index_feeds",
            "market_index_http",
        ),
    )
)

OUTSIDE: Final = re.compile(r"\[[^\]]+\]\(\.\./([^)]+)\)")
"""A link to a file of the project that is no page."""


def public_names() -> dict[str, str]:
    """Return the name under which each class of ours is told of, by the one under which it is defined."""
    return {
        f"{getattr(package, name).__module__}.{name}": f"{package.__name__}.{name}"
        for package in PACKAGES
        for name in package.__all__
        if isinstance(getattr(package, name), type)
    }


def within_the_site(_: Sphinx, page: str, source: list[str]) -> None:
    """Have a link that leaves the pages be the path that it names: what stands there is not in the site."""
    if "/" not in page:
        source[0] = OUTSIDE.sub(r"`\1`", source[0])


def as_public(app: Sphinx, env: Any, node: Any, content: Any) -> Any:
    """Return the link to a class that a signature names by the module that it is defined in."""
    name = public_names().get(node.get("reftarget", ""))
    if name is None:
        return None
    return env.domains.python_domain.resolve_xref(env, node["refdoc"], app.builder, "class", name, node, content)


def all_is_told_of(_: Sphinx, env: Any) -> None:
    """Warn of a public name that stands on no page."""
    told = env.domains.python_domain.objects
    for package in PACKAGES:
        for name in package.__all__:
            if f"{package.__name__}.{name}" not in told:
                LOG.warning("%s.%s is public and stands on no page", package.__name__, name)


def with_defaults(_: Sphinx, __: str, ___: str, of: Any, ____: Any, signature: str, returned: str) -> tuple[str, str]:
    """Show the defaults of a class that attrs made, and not the code that attrs made for them."""
    if signature and "attr_dict" in signature:
        fields = attrs.fields_dict(of)
        signature = re.sub(r"attr_dict\['(\w+)'\]\.default", lambda name: repr(fields[name[1]].default), signature)
    return signature, returned


def setup(app: Sphinx) -> None:
    """Tell Sphinx of what is done here."""
    app.connect("source-read", within_the_site)
    app.connect("missing-reference", as_public)
    app.connect("autodoc-process-signature", with_defaults)
    app.connect("env-check-consistency", all_is_told_of)
