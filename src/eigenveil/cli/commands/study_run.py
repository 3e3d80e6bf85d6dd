"""``eigenveil study run``, ``status`` and ``abort``: the lead of studies between organisations."""

from __future__ import annotations

import io
import logging
import tempfile
import time
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from eigenveil.cli import options
from eigenveil.cli.commands.fit import print_written
from eigenveil.cli.commands.study import LEAD_KIT, LeadKit, StudyFile, study_app
from eigenveil.cli.presenters.results import (
    as_json,
    check_free,
    new_folder,
    print_model,
    write_result,
)
from eigenveil.cli.presenters.screen import Screen, notify
from eigenveil.errors import EigenveilError, ProtocolError
from eigenveil.federation.protocol.requests import TRIES
from eigenveil.federation.study.file import read_study, write_toml
from eigenveil.federation.study.study import Study
from eigenveil.io.stopping import Stop
from eigenveil.planning.protocol import choose_protocol

if TYPE_CHECKING:
    from eigenveil.federation.protocol.certificates import Signed
    from eigenveil.network.flare.session import StudySession, StudyStatus

_EVERY = 0.5
_STOPPED = 130
# Seconds after which a study that is reported lost is.
_BELIEVED = 5.0
# Seconds without any answer of the aggregator, which may be stopped, or away for a moment.
_SILENT = 120.0
# Seconds beyond all tries of a step without a new answer: the study's process may be stopped, while
# the aggregator answers. Factors of the largest sums take minutes.
_STALLED = 600.0


def settled(study: Study) -> tuple[Study, str]:
    """The study with its protocol, and why that one where the study did not name it."""
    if study.protocol != "auto":
        return study, ""
    choice = choose_protocol(study, study.width)
    return study.with_protocol(choice.protocol), choice.reason


def run(
    study: StudyFile,
    out: Annotated[Path, typer.Option(help="Folder to write; it must not exist.")],
    kit: LeadKit = LEAD_KIT,
    timeout: Annotated[
        float, typer.Option(help="Seconds that a site may take for one answer, above 0.")
    ] = 600.0,
    wait_for_sites: Annotated[
        float,
        typer.Option(help="Seconds to wait until all sites are connected and have approved."),
    ] = 3600.0,
    overwrite: Annotated[bool, typer.Option(help="Replace an earlier result.")] = False,
    plots: Annotated[bool, typer.Option(help="Write figures.")] = True,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Run a study over its sites and write the result.

    Ctrl-C aborts the study; a second Ctrl-C leaves it running.
    """
    # imported here: the ledger's database library takes a moment to load
    from eigenveil.cli.commands.fit import federation_as_json, print_federation

    check_free(out, overwrite=overwrite)
    for name, seconds in (("timeout", timeout), ("wait-for-sites", wait_for_sites)):
        if not seconds > 0:
            raise options.WrongOption(
                f"--{name} {seconds:g} is not above 0.", hint="Give a number of seconds."
            )
    agreed, choice = settled(read_study(study))
    screen = Screen(quiet=quiet or json)
    say = _Notifier(quiet=quiet or json)
    say("connecting to the aggregator, which takes some seconds")
    with new_folder(out) as folder, open_session(kit) as session:  # before anything is spent
        stop = Stop()
        with stop.listening():
            job = session.submit(agreed, timeout=timeout)
            screen.print(f"study {agreed.name}, hash {agreed.hash}", soft_wrap=True)
            screen.print(f"job {job}; to follow it: eigenveil study status {job}", soft_wrap=True)
            say("submitted: the aggregator brings it to each site, whose owner decides about it")
            watch = _Watch(session, job, wait_for_sites, timeout, say)
            try:
                watch.until_finished(stop)
            except KeyboardInterrupt:  # the second one
                watch.say(f"left running; it is followed by: eigenveil study status {job}")
                raise typer.Exit(_STOPPED) from None
        model, signed = _fetched(session, job, kit, agreed, choice)
        written = write_result(model, folder, figures=plots, schema=model.study_.table_schema)
        write_toml(model.study_, folder / "study.toml")
        written.append(("study.toml", "the study that was run, for 'eigenveil study check'"))
    if json:
        found = as_json(model) | federation_as_json(model)
        options.print_json({**found, "signed": asdict(signed), "job": job, "out": str(out)})
        return
    print_model(model, screen)
    print_federation(model, screen)
    screen.print(f"certificate: {signed}", soft_wrap=True)
    print_written(screen, out, written)


def status(
    job: Annotated[
        str | None, typer.Argument(help="A job, as 'study run' names it; all by default.")
    ] = None,
    kit: LeadKit = LEAD_KIT,
    json: options.Json = False,
) -> None:
    """Say how far studies are."""
    with open_session(kit) as session:
        found = session.studies() if job is None else {job: session.status(job)}
    if json:
        options.print_json({name: _as_json(each) for name, each in found.items()})
        return
    screen = Screen()
    if not found:
        screen.print("The aggregator knows of no study.")
        return
    table = Table(title="studies")
    for name in ("job", "study", "state", "step"):
        table.add_column(name, overflow="fold")
    for name, each in found.items():
        step = f"{each.step}: {each.answered} answered" if each.step else ""
        table.add_row(name, each.name, each.state, step)
    screen.print(table)
    for name, each in found.items():
        if each.missing:
            screen.print(f"{name[:8]}: {_missing(each)}")
        if each.error is not None:
            screen.print(f"{name[:8]}: {each.error}")


def abort(
    job: Annotated[str, typer.Argument(help="A job, as 'study run' and 'study status' name it.")],
    kit: LeadKit = LEAD_KIT,
    quiet: options.Quiet = False,
) -> None:
    """End a study that waits or runs; what its sites have answered stays spent."""
    with open_session(kit) as session:
        session.abort(job)
    Screen(quiet=quiet).print(f"aborted: job {job}")


def fetch(
    job: Annotated[str, typer.Argument(help="A finished job, as 'study status' names it.")],
    out: Annotated[Path, typer.Option(help="Folder to write; it must not exist.")],
    kit: LeadKit = LEAD_KIT,
    overwrite: Annotated[bool, typer.Option(help="Replace an earlier result.")] = False,
    plots: Annotated[bool, typer.Option(help="Write figures.")] = True,
    quiet: options.Quiet = False,
) -> None:
    """Fetch the result of a study that has finished, and write it as 'study run' does."""
    check_free(out, overwrite=overwrite)
    with new_folder(out) as folder, open_session(kit) as session:
        model, signed = _fetched(session, job, kit)
        write_result(model, folder, figures=plots, schema=model.study_.table_schema)
        write_toml(model.study_, folder / "study.toml")
    _Notifier(quiet=quiet)(
        f"fetched: the result of study {model.study_.hash} is in {out}, {signed}"
    )


# -- following a study


class _Notifier:
    """Says what changed: a line an event, on standard error."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._last = ""

    def __call__(self, text: str) -> None:
        if text != self._last and not self._quiet:
            notify(text)
        self._last = text


@dataclass
class _Watch:
    """Waits for a study's end."""

    session: StudySession
    job: str
    patience: float
    timeout: float
    say: _Notifier

    def until_finished(self, stop: Stop) -> None:
        """Return when the result is there.

        Raises
        ------
        EigenveilError
            Why the study failed; when sites are not ready in time, or nothing comes of it.
        """
        begun = heard = moved = time.monotonic()
        last: object = None
        while True:
            if stop.requested:
                self._abort("stopped")
            try:
                found = self._status()
            except ProtocolError as error:
                if error.code not in ("no-aggregator", "session-closed"):
                    raise
                if time.monotonic() - heard > _SILENT:
                    raise _silent(self.job, error) from None
                self.say(f"no answer: {error.message}")
                stop.wait(lambda: time.sleep(_EVERY))
                continue
            heard = time.monotonic()
            if found.state == "finished":
                self.say(_sentence(found))
                return
            if found.is_over:
                raise _why_over(found)
            self.say(_sentence(found))
            reported = (found.state, found.step, found.answered)
            if reported != last:
                last, moved = reported, heard
            still = TRIES * self.timeout + _STALLED
            if found.state == "running" and heard - moved > still:
                raise _left(self.job, f"The study has made no progress for {still:g} s.", "stalled")
            if found.state == "waiting" and time.monotonic() - begun > self.patience:
                self.session.abort(self.job)
                raise ProtocolError(
                    f"Not all sites were ready within {self.patience:g} s, and the study was "
                    f"aborted: {_missing(found) or 'the aggregator did not say which'}.",
                    hint="Run it again when they are, or wait longer: --wait-for-sites.",
                    code="sites-not-ready",
                )
            stop.wait(lambda: time.sleep(_EVERY))

    def _status(self) -> StudyStatus:
        """How far it is; that it is lost is only believed when it stays so.

        FLARE's word and that of the aggregator's process are of different moments.
        """
        found = self.session.status(self.job)
        until = time.monotonic() + _BELIEVED
        while found.state == "lost" and time.monotonic() < until:
            time.sleep(_EVERY)
            found = self.session.status(self.job)
        return found

    def _abort(self, why: str) -> None:
        self.say(f"{why}: aborting the study (Ctrl-C again leaves it running)")
        self.session.abort(self.job)
        self.say("aborted: what sites have answered stays spent, what was only reserved is free.")
        raise typer.Exit(_STOPPED)


def open_session(kit: Path) -> StudySession:
    """A session of the lead, connected.

    Raises
    ------
    OutputError, DataError, ProtocolError
        When the kit is none of a lead, FLARE is not installed, or the aggregator cannot be reached.
    """
    from eigenveil.network.flare.authority import need_flare
    from eigenveil.network.kit import open_kit

    opened = open_kit(kit, role="lead")
    need_flare()
    from eigenveil.network.flare.session import StudySession

    logging.getLogger().addHandler(logging.NullHandler())  # what matters is an error of ours
    with redirect_stdout(io.StringIO()):  # FLARE states that it connects
        return StudySession(opened)


def _fetched(
    session: StudySession, job: str, kit: Path, agreed: Study | None = None, choice: str = ""
) -> tuple[Any, Signed]:
    """The fitted model of a finished study, and who signed its certificate.

    Checked to be of the study that was agreed on, and signed by the federation's parties.
    """
    from eigenveil.federation.protocol.certificates import who_signed
    from eigenveil.network.certificates import read_certificate
    from eigenveil.network.kit import open_kit
    from eigenveil.network.results import read_result_files

    with tempfile.TemporaryDirectory(prefix="eigenveil-") as place:
        try:
            session.fetch(job, Path(place))
        except ProtocolError as error:
            if agreed is None:
                raise
            raise ProtocolError(
                f"The study has finished; its result could not be fetched: {error.message}",
                hint=f"To fetch it: eigenveil study fetch {job} --out FOLDER.",
                code="not-fetched",
            ) from None
        model = read_result_files(Path(place), choice=choice)
    if agreed is not None and model.study_.hash != agreed.hash:
        raise ProtocolError(
            f"The aggregator sent the result of another study, {model.study_.hash[:12]}.",
            hint="It is not written; ask the aggregator's owner.",
            code="other-study",
        )
    root = read_certificate(open_kit(kit).root_certificate)
    signed = who_signed(model.certificate_, str(root.serial_number))
    assert signed is not None  # with a root there are signatures, or an error
    return model, signed


def _silent(job: str, error: ProtocolError) -> ProtocolError:
    return _left(
        job, f"The aggregator has not answered for {_SILENT:g} s: {error.message}", "no-answer"
    )


def _left(job: str, what: str, code: str) -> ProtocolError:
    """Why nobody waits for a study any more; it is not ended."""
    return ProtocolError(
        what,
        hint=f"The study may go on. How far it is: eigenveil study status {job}; its result, once "
        f"it has finished: eigenveil study fetch {job} --out FOLDER.",
        code=code,
    )


def _why_over(found: StudyStatus) -> EigenveilError:
    """Why a study ended without a result."""
    if found.error is not None:
        return found.error
    sentences = {
        "aborted": ("was aborted.", "What its sites have answered stays spent."),
        "lost": (
            "was lost: the aggregator stopped in the middle of it.",
            "Run it again: the new run takes its place in every ledger.",
        ),
    }
    what, hint = sentences.get(
        found.state, ("failed.", "The aggregator's log may give the reason.")
    )
    return ProtocolError(f"The study {what}", hint=hint, code=f"study-{found.state}")


def _sentence(found: StudyStatus) -> str:
    """How far a study is."""
    missing = _missing(found)
    match found.state:
        case "waiting":
            return f"waiting; {missing}" if missing else "waiting until it is begun"
        case "running":
            done = f"{found.step}: {found.answered} answered" if found.step else "running"
            return f"{done} (without {missing})" if missing else done
        case state:
            return state


def _missing(found: StudyStatus) -> str:
    return "; ".join(f"{name}: {why}" for name, why in sorted(found.missing.items()))


def _as_json(found: StudyStatus) -> dict[str, Any]:
    error = found.error
    return {
        "study": found.name,
        "study_hash": found.study_hash,
        "state": found.state,
        "step": found.step,
        "answered": found.answered,
        "missing": dict(found.missing),
        "error": None
        if error is None
        else {
            "code": error.code,
            "message": error.message,
            "hint": error.hint,
            "spent": None if error.spent is None else error.spent.as_dict(),
        },
    }


for _of_study in (run, status, abort, fetch):
    study_app.command()(_of_study)
