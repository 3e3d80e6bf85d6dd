"""Sphinx's settings: `make docs` builds the site, strictly and without a network.

Sphinx with the PyData theme, as NumPy, SciPy and scikit-learn's neighbours have it: the API pages
come from numpy-style docstrings, tutorials are run while the site is built, and the search works
from a folder of files.
"""

from __future__ import annotations

import os
import sys
from importlib.metadata import version as installed
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

project = "eigenveil"
copyright = "the maintainers of eigenveil"  # noqa: A001  Sphinx's name
version = release = installed("eigenveil")

extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
    "sphinx_design",
]
exclude_patterns = ["_build", "_templates", "jupyter_execute", "images"]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
myst_links_external_new_tab = False

# Tutorials run in a folder of their own each; an exception in one of them fails the build.
nb_execution_mode = os.environ.get("EIGENVEIL_DOCS_RUN", "cache")
nb_execution_cache_path = str(HERE / "_build" / "run")
nb_execution_in_temp = True
nb_execution_timeout = 600
# cells that did not run have no language; only "off", for a quick look, leaves them so
suppress_warnings = ["myst-nb.lexer"] if nb_execution_mode == "off" else []
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_merge_streams = True
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
os.environ["COLUMNS"] = "84"  # what fits beside the lists of contents
os.environ["JUPYTER_PLATFORM_DIRS"] = "1"
_startup = HERE / "_build" / "ipython" / "profile_default" / "startup"
_startup.mkdir(parents=True, exist_ok=True)
(_startup / "kernel_startup.py").write_bytes((HERE / "kernel_startup.py").read_bytes())
os.environ["IPYTHONDIR"] = str(HERE / "_build" / "ipython")

autosummary_generate = True
autodoc_default_options = {
    "members": True,
    # of scikit-learn's, whose own pages they need
    "exclude-members": ", ".join(
        ["get_metadata_routing"]
        + [
            f"set_{verb}_request"
            for verb in ("fit", "partial_fit", "predict", "score", "transform")
        ]
    ),
}
autodoc_typehints = "none"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

html_theme = "pydata_sphinx_theme"
html_title = "eigenveil"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
templates_path = ["_templates"]
highlight_language = "text"  # of blocks that do not say what they are: commands, messages
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "navbar_start": ["navbar-logo"],
    "navbar_end": ["theme-switcher"],
    "navbar_align": "left",
    "header_links_before_dropdown": 7,
    "secondary_sidebar_items": ["page-toc"],
    "show_prev_next": True,
    "use_edit_page_button": False,
    "navigation_with_keys": False,
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_sidebars = {page: [] for page in ("index", "start", "overview")}  # they have none beside them
# no page asks another host for anything
html_baseurl = ""


def setup(app: Sphinx) -> None:
    """Write the pages that are made of the code before they are read."""
    import generated_pages

    app.connect("builder-inited", lambda app: generated_pages.write(Path(app.srcdir)))
    links = generated_pages.ExternalLinks()
    app.connect("doctree-resolved", links.collect)
    app.connect("build-finished", links.write)
    app.connect("doctree-resolved", generated_pages.plain_commands)
    app.connect("doctree-resolved", generated_pages.titled_links)
