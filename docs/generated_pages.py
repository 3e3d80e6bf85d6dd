"""Pages of the site that are made of the code: commands, the schema, passes, the gallery."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes

from eigenveil.cli.app import all_commands
from eigenveil.models.task import TASKS
from eigenveil.privacy.certificate import Certificate

FOLDER = "reference/generated"


def write(docs: Path) -> None:
    """Write all of them; a page that has not changed is left as it is."""
    pages = {
        f"{FOLDER}/commands.md": _commands(),
        f"{FOLDER}/certificate-schema.md": _schema(),
        f"{FOLDER}/passes.md": _passes(),
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


# By what begins the name of a pass's first sum: for which release before it waits, or for none.
_WAITS = {
    "observed entries": "nothing",
    "columns, over closer ranges": "the ranges of columns, which are made narrower",
    "columns, over ranges": "the magnitudes of columns, which give the ranges of the bins",
    "columns": "nothing",
    "scale about the center": "the centre, from which norms are taken",
    "center, second stage": "the norms about the centre, which say where rows are shortened",
    "scale of centered rows": "the centre, from which norms are taken",
    "scores": "the pair moment, whose directions rows are seen along",
    "scale of adapted rows": "the second moment, which says through what rows are seen",
    "scale": "the columns' scales, where they are private; else nothing",
    "center": "the norms, which say where rows are shortened",
    "second moment with covariates": "the centre",
    "second moment": "the centre, and the norms about it where these say where rows are shortened",
    "variance along first directions": "the second moment, for its directions",
    "adapted second moment": "the moment before, which says through what rows are seen",
    "explained variance": "the components",
    "sketch": "the centre",
    "power round": "the centre, and the round before, for its directions",
    "pair moment": "the norms, which say where rows or documents are shortened",
    "norms of pairs": "nothing",
    "norms of triples": "the pair moment, whose directions triples are seen along",
    "triple moment": "the norms of what is seen along those directions",
    "sums": "the model of the release before, which says what belongs to which component",
}
_FITS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("`PrivatePCA()`", "pca", {}),
    ('`PrivatePCA(row_norm="auto")`', "pca", {"row_norm": "auto"}),
    ('`PrivatePCA(scale="private")`', "pca", {"scale": "private"}),
    ("`PrivatePCA(covariates=[0])`", "pca", {"covariates": (0,)}),
    ('`PrivatePCA(missing="pairs")`', "pca", {"missing": "pairs"}),
    ('`PrivatePCA(mechanism="gaussian")`', "pca", {"mechanism": "gaussian"}),
    ('`PrivatePCA(mechanism="sketch")`', "pca", {"mechanism": "sketch"}),
    ('`PrivatePCA(mechanism="power")`', "pca", {"mechanism": "power"}),
    ("`PrivateCovariance()`", "covariance", {}),
    ("`PrivateGaussianMixture(4)`", "gaussian-mixture", {}),
    ("`PrivateTopicModel(4)`", "topic-model", {}),
)


def _passes() -> str:
    lines = [
        "# Passes over the rows",
        "",
        "Made of the plans. A pass serves all sums that wait for the same release, a block of rows "
        "at a time: the first sum prepares the block's rows, the others find them prepared. What "
        "waits for a release cannot be in the pass that makes it, so a fit has as many passes as "
        "there are releases that wait for each other, and at sites as many rounds.",
    ]
    for called, name, values in _FITS:
        task = TASKS[name]
        if task.counted:
            values = {"n_components": 4} | values
        options = task.options("table", epsilon=1.0, delta=1e-5, **values)
        lines += ["", f"## {called}", "", "| pass | sums | waits for |", "|---|---|---|"]
        for number, planned in enumerate(task.make_plan(options, features=50).rounds, start=1):
            sums = ", ".join(each.name for each in planned)
            waits = next(said for begin, said in _WAITS.items() if sums.startswith(begin))
            lines.append(f"| {number} | {sums} | {waits} |")
    return "\n".join(lines) + "\n"


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
