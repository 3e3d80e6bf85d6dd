"""The pages of one analyst alone: a table, the steps to a fit of it, results, and the ledger.

What was chosen until a step stands in its address: the button back and two tabs lose nothing.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from urllib.parse import urlencode

from starlette.datastructures import UploadFile
from starlette.responses import Response

from eigenveil.console.pages import ledger, runs
from eigenveil.console.settings import READING, ROLES
from eigenveil.console.web import (
    Page,
    PageLink,
    Section,
    TaskForm,
    Visit,
    away,
    form_for,
    given_in,
    whole,
)
from eigenveil.errors import DataError, EigenveilError, OutputError

DOERS = ("owner", "approver", "lead")
UPLOAD = "/table/upload"
_STEPS = (
    ("/table", "Table"),
    ("/task", "What to find"),
    ("/rows", "Whose rows"),
    ("/columns", "Columns"),
    ("/fit", "Privacy"),
    ("/plan", "What it shows, and run"),
)
# What is of one page and not of a choice.
_OF_PAGE = ("csrf", "number", "slide")
_LONGEST_LEVELS = 20_000


def _chosen(visit: Visit) -> dict[str, str]:
    """What was chosen until now, as the next step is told."""
    own = ("role ", "kind ", "public ", "sure ")
    found = visit.typed.items()
    return {k: v for k, v in found if v and k not in _OF_PAGE and not k.startswith(own)}


def _steps(visit: Visit, here: str) -> dict[str, Any]:
    """The steps, those before this one as links, and what all of them keep."""
    kept, found = _chosen(visit), []
    done = True
    for path, text in _STEPS:
        if path == here:
            done = False
        href = path if path == "/table" else f"{path}?{urlencode(kept)}"
        found.append({"text": text, "href": href if done else "", "here": path == here})
    of_table = {name: kept[name] for name in ("table", *READING) if name in kept}
    return {
        "steps": found,
        "kept": kept,
        "whose": _whose_words(kept.get("whose", "")),
        "of_table": urlencode(of_table),
    }


def _whose_words(whose: str) -> str:
    if whose == "one":
        return "Each person has one row."
    return f"All rows with the same {whose[1:]} are of one person." if whose[:1] == "=" else ""


# -- the table


async def _table(visit: Visit, error: EigenveilError | None = None) -> Response:
    tables, found, guessed = visit.console.tables, None, None
    chosen = tables.folder is None or "table" in visit.request.query_params
    if chosen:
        if visit.person.role == "owner":
            guessed = await visit.ask("guessed")
        try:
            found = await visit.ask("table")
        except EigenveilError as wrong:
            if guessed is None or wrong.code == "desk-lost":
                raise
            error = wrong  # beside what was chosen
    book = await visit.ask("ledger", page=1)
    return visit.page(
        "table.html",
        table=found,
        chosen=chosen,
        guessed=guessed,
        status=400 if chosen and error else 200,
        names=tables.names(),
        folder=tables.folder,
        accounts=book["accounts"],
        runs=runs.shown(visit.console)[:5],
        number=visit.session.new_form(UPLOAD),
        error=error,
        **_steps(visit, "/table"),
    )


async def _upload(visit: Visit) -> Response:
    """Keep a table that was sent; one that cannot be read is not kept."""
    visit.take_form(UPLOAD)
    file = (await visit.request.form()).get("file")
    tables = visit.console.tables
    try:
        if not isinstance(file, UploadFile) or not file.filename:
            raise DataError("no-table-sent")
        name = tables.save(file.filename, file.file)
        try:
            await visit.console.desk.ask("table", of=visit.rows_of(name))
        except EigenveilError:
            tables.forget(name)
            raise
    except EigenveilError as error:
        if error.code == "desk-lost":
            raise
        return await _table(visit, error)
    visit.note("brought a table", name)
    return away(f"/task?{urlencode(_chosen(visit) | {'table': name})}")


async def _forget(visit: Visit) -> Response:
    """Delete a table; what was charged for it stays."""
    visit.take_form(UPLOAD)
    name = visit.typed.get("table", "")
    with suppress(OSError):
        visit.console.tables.forget(name)
    visit.note("deleted a table", name)
    return away("/table")


# -- the steps


async def _task(visit: Visit) -> Response:
    if not visit.rows.data:
        return away("/table")
    found = _steps(visit, "/task")
    for each in (kinds := await visit.ask("kinds")):
        each["href"] = f"/rows?{urlencode(found['kept'] | {'kind': each['name']})}"
    return visit.page("task.html", kinds=kinds, **found)


async def _rows(visit: Visit) -> Response:
    """Whose each row is: a column of the table, and that which its values propose."""
    if not visit.rows.data:
        return away("/table")
    form, found = (await form_for(visit))["form"], await visit.ask("table")
    proposed, owner = found["unit"], visit.person.role == "owner"
    if proposed is None and owner and form["schemas"]:
        with suppress(DataError, OutputError):  # of a format without names or types
            proposed = (await visit.ask("seen"))["unit"]
    return visit.page(
        "rows.html",
        form=form,
        table=found,
        proposed=proposed,
        next="/columns",
        **_steps(visit, "/rows"),
    )


async def _seen(visit: Visit) -> dict[str, Any]:
    """The form of the columns; none where they are settled, or are not said one by one."""
    if not visit.rows.data:
        raise DataError("no-table-chosen")
    form, found = (await form_for(visit))["form"], await visit.ask("table")
    seen, why = None, ""
    if visit.console.settings.rows.schema is not None:
        why = "A schema says what the columns are."
    elif not form["schemas"]:
        why = "A stream has numbers alone: all columns are used."
    elif visit.person.role != "owner":
        why = "Only the owner of the rows says what columns are: all are taken as numbers."
    else:
        try:
            seen = await visit.ask("seen")
        except DataError as error:
            if error.code not in ("no-names", "not-a-table"):
                raise
            why = "Files of this format have numbers alone: all columns are used."
    return {"form": form, "table": found, "seen": seen, "why": why, **_steps(visit, "/columns")}


async def _settle(visit: Visit, form: dict[str, Any]) -> Response:
    given = {key: text.strip()[:_LONGEST_LEVELS] for key, text in visit.form.items()}
    whose = given.get("whose", "")
    schema = await visit.ask(
        "settle",
        given=given,
        unit=whose[1:] if whose[:1] == "=" else None,
        folder=str(visit.console.tables.schemas),
        kind=form["name"],
    )
    return away(f"/fit?{urlencode(_chosen(visit) | {'schema': schema})}")


def _given(visit: Visit, form: dict[str, Any]) -> dict[str, str]:
    given = given_in([*form["options"], *form["own"]], visit.typed)
    whose = visit.typed.get("whose", "")
    if whose == "one":
        given["one_row_per_person"] = "yes"
    elif whose[:1] == "=":
        given["unit"] = whose[1:]
    return given


async def _fit_form(visit: Visit) -> dict[str, Any]:
    return {**await form_for(visit), **_steps(visit, "/fit")}


async def _plan(visit: Visit) -> Response:
    """What a fit would show, and what would be left after it; and the button that begins it."""
    found = await form_for(visit)
    form, rows = found["form"], whole(visit.typed.get("rows", ""), 0)
    given = _given(visit, form)
    try:
        title = await visit.ask("check", kind=form["name"], given=given)
    except EigenveilError as error:
        return _FIT.page(visit, await _fit_form(visit), visit.typed, status=400, error=error)
    expected = given | given_in(form["expected"], visit.typed)
    asked = {"kind": form["name"], "given": expected | {"epsilon": ""}, "rows": rows}
    usual = {each["name"]: each["default"] for each in form["options"]}
    epsilon = float(given["epsilon"] or usual["epsilon"])
    shown = await visit.forecast(form["quality"], asked if rows else None, epsilon=epsilon)
    taken = given | {"epsilon": f"{shown['epsilon']:g}"}
    return visit.page(
        "plan.html",
        given=visit.typed,
        rows=rows,
        title=title,
        accounts=await visit.ask("cost", kind=form["name"], given=taken),
        number=visit.session.new_form(_FIT.template),
        **found,
        **shown,
        **_steps(visit, "/plan"),
    )


async def _start(visit: Visit, form: dict[str, Any]) -> Response:
    given = _given(visit, form)
    title = await visit.ask("check", kind=form["name"], given=given)
    run = visit.start("fit", title, kind=form["name"], given=given)
    visit.note("started a fit", title)
    return away(f"/runs/{run.name}")


_COLUMNS = TaskForm("columns.html", _settle, _seen)
_FIT = TaskForm("fit.html", _start, _fit_form)
SECTION = Section(
    "One table",
    (
        PageLink("/table", "New fit", ROLES),
        PageLink("/runs", "Results", ROLES),
        PageLink("/ledger", "Ledger", ROLES),
    ),
    (
        Page("/table", _table, ROLES),
        Page(UPLOAD, _upload, ("owner",), form=True, files=1),
        Page("/table/delete", _forget, ("owner",), form=True),
        Page("/task", _task, ROLES),
        Page("/rows", _rows, ROLES),
        Page("/columns", _COLUMNS.show, ROLES),
        Page("/columns", _COLUMNS.send, ("owner",), form=True),
        Page("/fit", _FIT.show, ROLES),
        Page("/fit", _FIT.send, DOERS, form=True),
        Page("/plan", _plan, ROLES),
        *ledger.pages(ROLES, ("owner",)),
        *runs.pages(ROLES, DOERS),
    ),
)
