"""How the pages are built: Markdown through MyST, one theme, warnings are errors."""

import logging
from importlib.metadata import version as installed

project = "Samecommit"
author = "the Samecommit authors"
project_copyright = author
release = installed("samecommit")
version = release

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_click",
    "sphinx_copybutton",
]
exclude_patterns = ["_build"]
nitpicky = False

myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist", "fieldlist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "description"
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True

html_theme = "furo"
html_title = "Samecommit"
html_show_sourcelink = False

# A section may have its index before its first page. Sphinx gives this warning no type by which to suppress it.
logging.getLogger("sphinx.sphinx.directives.other").addFilter(
    lambda record: getattr(record, "subtype", "") != "empty_glob"
)
