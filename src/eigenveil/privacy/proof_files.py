"""The proofs that certificates cite, as they are shipped with the package.

They are written once, in ``docs/proofs`` of the repository; the wheel holds the same files as
``eigenveil/proofs``.
"""

from __future__ import annotations

from pathlib import Path

import eigenveil
from eigenveil.errors import DataError, nearest, short_name

_PACKAGE = Path(eigenveil.__file__).parent
# In an installed package, and in a checkout that is installed as editable.
_FOLDERS = (_PACKAGE / "proofs", _PACKAGE.parents[1] / "docs" / "proofs")


def proof_titles() -> dict[str, str]:
    """The title of each proof, by the name of its file without ``.md``."""
    return {
        file.stem: file.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")
        for file in sorted(_folder().glob("*.md"))
    }


def read_proof(name: str) -> str:
    """The text of one proof, as Markdown.

    Parameters
    ----------
    name : str
        As a certificate names it (``"gaussian.md"``), or without ``.md``.
    """
    known = proof_titles()
    stem = name.removesuffix(".md")
    if stem not in known:
        raise DataError("unknown-proof", proof=short_name(name), near=nearest(name, known))
    return (_folder() / f"{stem}.md").read_text(encoding="utf-8")


def _folder() -> Path:
    return next((folder for folder in _FOLDERS if folder.is_dir()), _FOLDERS[0])
