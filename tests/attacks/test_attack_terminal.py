"""Text of others on the owner's terminal: markup, emoji, escape sequences, turned writing."""

from __future__ import annotations

import ast
import copy
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from rich.table import Table

import eigenveil.cli
from eigenveil import PrivatePCA
from eigenveil.app import results, watch
from eigenveil.app.fit import Fitted, federation_parts
from eigenveil.app.ledger import LedgerView
from eigenveil.app.presenters import tensors
from eigenveil.app.presenters.study import summary_parts
from eigenveil.app.site import study_parts
from eigenveil.cli import app as whole
from eigenveil.cli.commands import fit
from eigenveil.cli.presenters import screen as progress
from eigenveil.cli.presenters import site_console
from eigenveil.cli.presenters.screen import Screen, bold, coloured, notify, say
from eigenveil.errors import (
    LONGEST_NAME,
    LONGEST_TEXT,
    DataError,
    PrivacyError,
    ProtocolError,
    printable,
    short_name,
)
from eigenveil.federation.approvals.record import Record
from eigenveil.federation.ledger.entries import SessionKey
from eigenveil.federation.study.study import make_study
from eigenveil.models.intervals.bars import Bars, Intervals, Quantity
from eigenveil.models.result import model_digest
from eigenveil_papers import command
from eigenveil_papers.reproduction.runner import RunProgress
from refusal_tools import refuses

HOSTILE = {
    ":smile: 61:AB:CD": ":smile: 61:AB:CD",
    "[red]x[/red]": "[red]x[/red]",
    "[/]": "[/]",
    "[link=http://a.b]c": "[link=http://a.b]c",
    "a\x1b[2J\x1b]0;t\x07b": "a\\x1b[2J\\x1b]0;t\\x07b",
    "\x9b31mx": "\\x9b31mx",
    "a\u202egnp.exe\u2066": "a\\u202egnp.exe\\u2066",
    "a\nHOLDS\r\u2028b": "a\\nHOLDS\\r\\u2028b",
    "a\u200bb\U000e0041": "a\\u200bb\\U000e0041",
    "a\ud800b": "a\\ud800b",
    "x" * 10_000: "x" * 12,
}
NAMES = pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))


def literal(printed: str, name: str, *, folded: bool = True) -> None:
    """Printed as it is, on lines that only this package begins; in cells it may be folded."""
    assert all(line.isprintable() for line in printed.split("\n"))
    assert len(printed) < 30_000
    squeezed = "".join(c for c in printed if not c.isspace() and c not in "│┃")
    wanted = "".join(HOSTILE[name].split())
    assert wanted in (squeezed if folded else printed.replace(" ", ""))
    assert "x" * (LONGEST_TEXT + 1) not in squeezed


@NAMES
def test_the_screen(name, capsys):
    screen = Screen()
    for thing in (name, bold(name), coloured(name, "red"), SimpleNamespace(__str__=None)):
        screen.print(thing)
    table = Table(title=name)
    table.add_column(name)
    table.add_row(name)
    screen.print(table)
    screen.print(Path(name.replace("\ud800", "\\ud800")), ValueError(name))
    say(name)
    literal(capsys.readouterr().out, name)
    Screen(errors=True).print(name)
    notify(name)
    caught = capsys.readouterr()
    assert not caught.out
    literal(caught.err, name)


@NAMES
def test_what_is_cut(name):
    assert len(printable(name)) <= LONGEST_TEXT
    assert len(short_name(name)) <= LONGEST_NAME
    assert printable(name, most=None).startswith(HOSTILE[name][:40])
    assert len(short_name("\u202e" * 100)) <= LONGEST_NAME


FOLDER = Path(eigenveil.cli.__file__).parent
MODULES = [
    *(path for path in FOLDER.rglob("*.py") if path.name != "screen.py"),
    *(FOLDER.parent / "app").rglob("*.py"),
    *FOLDER.parent.glob("models/*/presenter.py"),
]
# the version; a proof as it was shipped
ECHOING = {"app.py", "certify.py"}


def test_nothing_is_printed_by_another_way():
    """No other console, no markup, no bare print: what the tests below cannot reach."""
    assert len(MODULES) > 50
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                assert node.module not in ("rich.console", "rich.markup", "rich"), path
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called not in ("print", "Console", "sys.stdout.write", "sys.stderr.write")
                assert not called.endswith(("from_markup", "typer.secho", "error.show")), path
                if called == "typer.echo":
                    assert path.name in ECHOING, path
                if called == "Progress":
                    assert "console=Screen(errors=True)" in ast.unparse(node)
                if called == "TextColumn":
                    assert "markup=False" in ast.unparse(node)


# -- every command's printing functions


@pytest.fixture(scope="module")
def fitted():
    rows = np.random.default_rng(0).normal(size=(500, 3)) * [9, 1, 1]
    return PrivatePCA(n_components=1, epsilon=50).fit(pd.DataFrame(rows, columns=list("abc")))


def renamed(model, name):
    names = (name, name + "2", name + "3")
    certificate = model.certificate_.model_copy(
        update={"model": model_digest(model._result.factors, features=3, names=names)}
    )
    other = copy.copy(model)
    other._result = replace(model._result, names=names, certificate=certificate)
    return other


def _results(name, fitted):
    yield results.result_parts(renamed(fitted, name))


def _releases_and_views(name, fitted):
    yield [
        results.release_table([fitted.certificate_.releases[0].model_copy(update={"name": name})])
    ]
    said = SimpleNamespace(
        epsilon=1.0, delta=0.0, mu=None, certified=False, __str__=lambda: name, caveats=()
    )
    yield results.view_parts({name: said, "b": fitted.guarantee_})


def _mixtures_and_topics(name, fitted):
    del fitted
    bars = Bars.about(np.ones((1, 2)), np.ones((1, 2)))
    entries = Quantity("mean", name, ("component", "feature"), (("1",), (name, "b")), bars)
    weight = Quantity("weight", name, ("component",), (("1",),), Bars.none((1,), name))
    quantities = {"weight": weight, "mean": entries, "word": entries}
    plan = SimpleNamespace(
        auto_components=False, auto_alpha0=False, n_components=1, covariance_type="full"
    )
    shared = SimpleNamespace(
        n_components_=1,
        plan_=plan,
        certificate_=SimpleNamespace(stopped=None),
        strengths_=np.ones(1),
        noise_floor_=0.1,
        usable_=np.zeros(1, dtype=bool),
        converged_=False,
        weights_=np.ones(1),
        n_samples_=9.0,
        noise_variance_=1.0,
        variances_=np.ones(1),
        means_=np.array([[9.0, 1.0]]),
        feature_names_in_=np.array([name, "b"], dtype=object),
        topics_=np.ones((1, 2)),
        concentration_=np.ones(1),
        alpha0="auto",
        top_words=lambda n_words: [[name, "b"]],
        intervals=lambda: Intervals(0.95, "table", quantities),
    )
    yield tensors.MixturePresenter().parts(shared)
    yield tensors.TopicPresenter().parts(shared)


def _watching(name, fitted):
    del fitted
    model = SimpleNamespace(components_=np.array([[9.0, 1.0]]), explained_variance_ratio_=[0.5])
    yield [watch.component_table(model, [name, "b"])]


def _studies(name, fitted):
    del fitted
    study = make_study(
        name="s",
        columns=[name.replace("\ud800", "\u202e"), "b", "c"],
        components=1,
        epsilon=1.0,
        delta=1e-6,
        protocol="cape",
        sites=[{"name": "a"}, {"name": "b"}],
    )
    if "\ud800" not in name:  # which no study has
        yield summary_parts(study, None, {})
    yield summary_parts(study, None, {"a": name})
    other = SimpleNamespace(name=name, task="pca", epsilon=1.0, names=("a",), hash="0" * 64)
    yield study_parts("waits", [other])


def _federated_results(name, fitted):
    traffic = SimpleNamespace(messages=1, received=2, sent=3, sent_by_step={name: 3})
    yield federation_parts(
        SimpleNamespace(
            study_=SimpleNamespace(protocol="cape"),
            certificate_=SimpleNamespace(federation=SimpleNamespace(masks="modular")),
            traffic_={name: traffic},
            choice_=name,
            missing_={name: name},
            views_={"outsider": fitted.guarantee_},
            site_guarantees_={name: fitted.guarantee_, "b": replace(fitted.guarantee_, epsilon=2)},
        )
    )


def _ledgers(name, fitted):
    del fitted
    for place in range(4):
        study, session, data_set, outcome = (name if i == place else "a" for i in range(4))
        account = SimpleNamespace(
            begun="2026-01-01T00:00",
            key=SessionKey(study, session),
            terms=SimpleNamespace(data_set=data_set),
            outcome=outcome,
            charges=(),
        )
        yield LedgerView(name, Record(""), (), [account], ()).parts()


SHOWN = (
    _results,
    _releases_and_views,
    _mixtures_and_topics,
    _watching,
    _studies,
    _federated_results,
    _ledgers,
)


@NAMES
@pytest.mark.parametrize("shown", SHOWN)
def test_what_commands_show(shown, name, fitted, capsys):
    for parts in shown(name, fitted):
        Screen().show(parts)
        literal(capsys.readouterr().out, name)


@NAMES
def test_what_is_written(name, capsys):
    fit.show_written(Screen(), Fitted(None, Path(name), [(name, name)]))
    literal(capsys.readouterr().out, name)
    site_console.lines(quiet=False)(name)
    literal(capsys.readouterr().out, name)


@NAMES
def test_progress(name, capsys):
    with progress.fit_progress(quiet=False) as line:
        line(name, 3)
        line(name, 1, 1)
    literal(capsys.readouterr().err, name)
    with progress._bars() as bar:
        bar(name, 3)
    with command.progress(name, name, quiet=False) as told:
        told(RunProgress(1, 1, name))
    literal(capsys.readouterr().err, name)


@NAMES
@pytest.mark.parametrize("kind", [ProtocolError, DataError, PrivacyError])
def test_errors(name, kind, capsys, monkeypatch):
    error = kind.relayed(name, hint=name, code="problem")

    def fails(*_, **__):
        raise error

    command = SimpleNamespace(make_context=fails, params=[], _main_shell_completion=lambda *_: None)
    monkeypatch.setattr(whole.typer.main, "get_command", lambda _: command)
    with refuses(kind.exit_status, kind=SystemExit):
        whole.main(["show"])
    literal(capsys.readouterr().err, name)


@NAMES
def test_words_that_are_no_options(name, capsys):
    with refuses(2, kind=SystemExit):
        whole.main(["fit", f"--{name}"])
    printed = capsys.readouterr()
    assert not printed.out
    assert all(line.isprintable() for line in printed.err.split("\n"))
    assert len(printed.err) < 3 * LONGEST_TEXT
    assert "error: " in printed.err
    assert "hint: " in printed.err


@NAMES
def test_a_certificate_of_somebody_else(name, fitted, tmp_path, capsys):
    file = tmp_path / "certificate.json"
    fitted.certificate_.write(file)
    said = json.loads(file.read_text())
    said["releases"][0]["name"] = name
    said["software"] = name
    file.write_text(json.dumps(said))
    with pytest.raises(SystemExit):
        whole.main(["certify", str(file)])
    printed = capsys.readouterr()
    everything = printed.out + printed.err
    assert all(line.isprintable() for line in everything.split("\n"))
    assert "x" * (LONGEST_TEXT + 1) not in everything


@NAMES
def test_files_by_their_names(name, tmp_path, capsys, monkeypatch):
    name = name[:100].replace("/", "_")
    monkeypatch.chdir(tmp_path)
    for words in (["fit", name, "--out", "r"], ["show", name], ["study", "check", name]):
        with pytest.raises(SystemExit) as ended:
            whole.main(words)
        assert 2 <= ended.value.code < 70
        printed = capsys.readouterr()
        assert all(line.isprintable() for line in (printed.out + printed.err).split("\n"))
