"""Pages of the site that are made of the code: commands, the certificate's schema, the gallery."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes

from eigenveil.cli.app import all_commands
from eigenveil.privacy.certificate import Certificate

FOLDER = "reference/generated"


def write(docs: Path) -> None:
    """Write all of them; a page that has not changed is left as it is."""
    pages = {
        f"{FOLDER}/commands.md": _commands(),
        f"{FOLDER}/certificate-schema.md": _schema(),
        f"{FOLDER}/gallery.md": _gallery(docs),
    }
    for name, text in pages.items():
        place = docs / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if not place.exists() or place.read_text(encoding="utf-8") != text:
            place.write_text(text, encoding="utf-8")


def _commands() -> str:
    lines = [
        "# Commands",
        "",
        "Made of the declarations of the command line. Every command has `--help`.",
        "",
    ]
    for name, command in all_commands().items():
        lines += _command(f"eigenveil {name}", command.load(name), level=2)
    return "\n".join(lines) + "\n"


def _command(called: str, command: object, *, level: int) -> Iterator[str]:
    lines = [f"{'#' * level} `{called}`", "", _plain(getattr(command, "help", "") or ""), ""]
    children = getattr(command, "commands", None)
    if children:
        for name, child in children.items():
            lines += _command(f"{called} {name}", child, level=min(level + 1, 4))
        return iter(lines)
    rows = []
    for parameter in command.params:  # type: ignore[attr-defined]
        if parameter.name == "help":
            continue
        said = getattr(parameter, "help", "") or ""
        if parameter.param_type_name == "argument":
            rows.append((f"`{parameter.metavar or (parameter.name or '').upper()}`", said))
            continue
        flags = ", ".join(f"`{each}`" for each in (*parameter.opts, *parameter.secondary_opts))
        default = parameter.default
        if (
            not callable(default)
            and default not in (None, False, (), [], "")
            and not isinstance(default, bool)
        ):
            said = f"{said} Default: {default}."
        rows.append((flags, said))
    if rows:
        lines += ["| option | what it does |", "|---|---|"]
        lines += [f"| {flags} | {_plain(said)} |" for flags, said in rows]
        lines.append("")
    return iter(lines)


def _plain(text: str) -> str:
    joined = " ".join(text.replace("\b", "").split())
    return joined.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*").replace("[", "\\[")


def _schema() -> str:
    schema = json.dumps(Certificate.model_json_schema(), indent=2)
    return (
        "# The certificate's schema\n\n"
        "What `certificate.json` is, as a JSON schema, made of the class that reads it. "
        "[Certificates](../../certificates.md) says what its fields mean.\n\n"
        f"```json\n{schema}\n```\n"
    )


def _gallery(docs: Path) -> str:
    lines = [
        "# Gallery",
        "",
        "Every picture of these pages. A picture is a link to its full size.",
        "",
    ]
    for title, folder in (
        ("This package", "images"),
        ("Audits", "images/audit"),
        ("The papers, measured again", "images/reproduction"),
    ):
        lines += [f"## {title}", "", "::::{grid} 1 2 2 3", ":gutter: 3", ""]
        for picture in sorted((docs / folder).glob("*.png")):
            where = f"../../{folder}/{picture.name}"
            lines += [
                ":::{grid-item-card}",
                f"[![{picture.stem}]({where})]({where})",
                "",
                picture.stem,
                ":::",
                "",
            ]
        lines += ["::::", ""]
    return "\n".join(lines)


class ExternalLinks:
    """The links of all pages to other hosts, listed beside the site; nothing here follows them."""

    def __init__(self) -> None:
        self._found: dict[str, set[str]] = {}

    def collect(self, _: Any, tree: nodes.document, page: str) -> None:
        """Note the links of a page."""
        for link in tree.findall(nodes.reference):
            if str(link.get("refuri", "")).startswith(("http://", "https://")):
                self._found.setdefault(link["refuri"], set()).add(page)

    def write(self, app: Any, _: Exception | None) -> None:
        """Write them, a line for each."""
        lines = [
            f"{link}  ({', '.join(sorted(pages))})" for link, pages in sorted(self._found.items())
        ]
        Path(app.outdir, "external-links.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def plain_commands(_: Any, tree: nodes.document, __: str) -> None:
    """Show cells of commands as they are typed in a shell, without IPython's first line."""
    for block in list(tree.findall(nodes.literal_block)):
        first, _, rest = block.astext().partition("\n")
        if first == "%%bash":
            block.children = [nodes.Text(rest)]
            block.children[0].parent = block
            block.rawsource, block["language"] = rest, "bash"


def titled_links(app: Any, tree: nodes.document, page: str) -> None:
    """Call a page by its title where a text calls it by its file, as it must beside the site."""
    for link in tree.findall(nodes.reference):
        called = link.astext()
        if link.get("internal") and re.fullmatch(r"[\w./-]+\.md", called):
            place = posixpath.join(posixpath.dirname(page), link["refuri"].partition("#")[0])
            title = app.env.titles.get(posixpath.normpath(place).removesuffix(".html"))
            if title is not None:
                link.children = [nodes.inline("", title.astext())]
                link.children[0].parent = link
