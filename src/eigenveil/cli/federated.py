"""``eigenveil fit --site NAME=FILES``: the whole protocol among sites in one process."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID
from rich.table import Table

from eigenveil.cli import options
from eigenveil.cli.columns import WantedColumns
from eigenveil.cli.report import print_views
from eigenveil.cli.screen import Screen, bold, description, tell
from eigenveil.errors import DataError, OutputError, printable
from eigenveil.federation.ledger import Ledger
from eigenveil.federation.study import Study
from eigenveil.federation.sums import settle
from eigenveil.io.files import expand
from eigenveil.moments.source import RowSource
from eigenveil.runtime.running import wished_budget

_LEDGER = ".ledger"


def read_sites(texts: Sequence[str]) -> dict[str, list[str]]:
    """Files of each site, from ``NAME=FILE``; a name given again adds files.

    Raises
    ------
    DataError
        When a text is not of this form.
    """
    found: dict[str, list[str]] = {}
    for text in texts:
        name, equals, file = text.partition("=")
        if not (name and equals and file):
            raise DataError(
                f"--site {text!r} is not NAME=FILE.", hint="For example: --site north=a.parquet."
            )
        found.setdefault(name, []).append(file)
    return found


def open_sites(files: dict[str, list[str]], wanted: WantedColumns) -> dict[str, RowSource]:
    """Rows of each site; columns by name, those of the first site where none are given.

    Raises
    ------
    DataError
        Naming the site, its file and the column; or a file that two sites are given: its rows would
        count twice, and the guarantee speaks of rows that count once.
    """
    found: dict[str, RowSource] = {}
    seen: dict[Path, str] = {}
    for name, paths in files.items():
        try:
            rows = wanted.open_like(paths)
        except (DataError, OutputError) as error:
            raise type(error)(
                f"site {name}: {error.message}", hint=error.hint, code=error.code
            ) from None
        for file in expand(paths):
            if (first := seen.setdefault(file.resolve(), name)) != name:
                raise DataError(
                    f"site {name}: {file} is given to site {first}, too.",
                    hint="Give each file once: rows that count twice break the privacy guarantee.",
                    code="file-twice",
                )
        if found and rows.features != next(iter(found.values())).features:
            first, other = next(iter(found.items()))
            raise DataError(
                f"site {name} has {rows.features} columns, site {first} {other.features}.",
                hint="All sites must have the same columns.",
                code="other-features",
            )
        found[name] = rows
        if wanted.columns is None and wanted.names is None and rows.names is not None:
            wanted = WantedColumns(columns=list(rows.names), header=wanted.header)
    return found


def open_ledgers(folder: Path, study: Study, say: Callable[[str], None]) -> dict[str, Ledger]:
    """Each site's ledger ``NAME.ledger`` in a folder; one that is new gets the study's wish.

    Raises
    ------
    OutputError
        When the folder cannot be made.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"{folder}: {error.strerror or error}.", hint="Choose another --ledgers."
        ) from None
    found, terms = {}, settle(study)
    budget = wished_budget(terms)
    for name in terms.names:
        place = folder / f"{name}{_LEDGER}"
        ledger = found[name] = Ledger(place)
        if not place.exists() or ledger.budget(budget.data_set) is None:
            ledger.set_budget(budget)
            say(
                f"{place}: new, with a budget of epsilon = {budget.epsilon:g} at delta = "
                f"{budget.delta:g}, which this study uses up ('eigenveil ledger budget' sets it)."
            )
    return found


@contextmanager
def protocol_progress(sites: int, *, quiet: bool) -> Iterator[Callable[[str, int], None] | None]:
    """A progress callback: a bar a step on a terminal, a line a step elsewhere."""
    if quiet:
        yield None
    elif sys.stderr.isatty():
        columns = (description(), BarColumn(), MofNCompleteColumn())
        with Progress(*columns, console=Screen(errors=True)) as bars:
            tasks: dict[str, TaskID] = {}

            def advance(step: str, count: int) -> None:
                if step not in tasks:
                    tasks[step] = bars.add_task(printable(step), total=sites)
                bars.advance(tasks[step], count)

            yield advance
    else:
        counts: dict[str, int] = {}

        def note(step: str, count: int) -> None:
            counts[step] = counts.get(step, 0) + count
            if counts[step] == sites:
                tell(f"{step}: {sites} site{'' if sites == 1 else 's'} answered")

        yield note


def print_federation(model: Any, out: Screen) -> None:
    """Traffic of each site, and what each adversary is held to."""
    study = model.study_
    heading = f"protocol {study.protocol}, masks {model.certificate_.federation.masks}"
    table = Table(title=heading)
    for name in ("site", "messages", "received", "sent", "largest message"):
        table.add_column(name, justify="left" if name == "site" else "right")
    for name, traffic in model.traffic_.items():
        largest = max(traffic.sent_by_step.items(), key=lambda item: item[1])
        table.add_row(
            name,
            str(traffic.messages),
            options.bytes_text(traffic.received),
            options.bytes_text(traffic.sent),
            f"{largest[0]}: {options.bytes_text(largest[1])}",
        )
    out.print(table)
    if model.choice_:
        out.print(f"protocol {study.protocol} was chosen: {model.choice_}")
    for name, why in model.missing_.items():
        out.print(bold("missing:"), f"site {name}: {why}")
    print_views(model.views_, out)


def federation_as_json(model: Any) -> dict[str, Any]:
    """The same as plain values."""
    return {
        "protocol": model.study_.protocol,
        "choice": model.choice_,
        "study_hash": model.study_.hash,
        "views": {name: view.as_dict() for name, view in model.views_.items()},
        "traffic": {
            name: {
                "messages": traffic.messages,
                "received": traffic.received,
                "sent": traffic.sent,
                "sent_by_step": traffic.sent_by_step,
            }
            for name, traffic in model.traffic_.items()
        },
        "missing": model.missing_,
    }
