"""Configures Sphinx for `make docs`: a site of the Markdown pages, built without a network."""

from __future__ import annotations

import re
from importlib import metadata
from typing import Final

from sphinx.application import Sphinx

project = "market_index"
author = "The market_index maintainers"
release = metadata.version("market-index")
extensions = ["myst_parser", "sphinx_copybutton"]

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

OUTSIDE: Final = re.compile(r"\[[^\]]+\]\(\.\./([^)]+)\)")
"""Matches a link to a file of the project that is not a page."""


def replace_outside_links(_: Sphinx, page: str, source: list[str]) -> None:
    """Replace each link to a file outside the pages by its path, because the site does not contain the file."""
    if "/" not in page:
        source[0] = OUTSIDE.sub(r"`\1`", source[0])


def setup(app: Sphinx) -> None:
    """Connect the function above to the event of Sphinx."""
    app.connect("source-read", replace_outside_links)
