"""Whatever options are given together: a package's error before anything is charged, or a result.

A fit with `missing="pairs"`, a public bound and no private centre failed after it had spent its
budget; one with `groups=` gave a file that could not be read. The options are drawn from the
registry, so that a new one is tried with all others as soon as it is declared.
"""

import io
import json
import warnings
from collections import Counter
from contextlib import suppress

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import soak_tools
from eigenveil import DataError, EigenveilError, Ledger
from eigenveil.app.results import PRESENTERS
from eigenveil.cli.presenters.screen import Screen
from eigenveil.federation.protocol.certificates import check
from eigenveil.models import domains as declared
from eigenveil.models.options import OPTIONS, Options, options_of
from eigenveil.models.stored import StoredModel
from eigenveil.models.task import TASKS

D = 4
NAMES, UNIT = ("a", "b", "c", "d"), "who"
NUMBERS = (0, 1e-9, 1e-6, 0.05, 0.5, 1.0, 3.0, 30.0)
FITS = [(task.name, path) for task in TASKS.values() for path in task.estimators]
EACH = soak_tools.times(200)


def of_shares(domain):
    shares = st.dictionaries(
        st.sampled_from(domain.steps), st.sampled_from((0, 0.1, 1.0)), max_size=6
    )
    return st.just("those that are taken") | shares


VALUES = {
    declared.WholeNumber: lambda d: st.sampled_from([n for n in (0, 1, 2, 3, D, 60) if d.has(n)]),
    declared.Number: lambda d: st.sampled_from([n for n in NUMBERS if d.has(n)]),
    declared.OneOf: lambda d: st.sampled_from(d.names),
    declared.Text: lambda _: st.just(UNIT),
    declared.Flag: lambda d: st.sampled_from([b for b in (True, False) if d.has(b)]),
    declared.Nothing: lambda _: st.none(),
    declared.NumberAFeature: lambda _: st.sampled_from(
        [[0.0] * D, [0.5] * D, [1.0, 0.0, 2.0, 3.0]]
    ),
    declared.RangeAFeature: lambda _: st.just([[-3.0] * D, [3.0, 4.0, 5.0, 3.0]]),
    declared.SomeColumns: lambda _: st.sampled_from([[0], [1, 3], ["b"], ["a", "d"]]),
    declared.Pair: lambda _: st.just((1.0, 10.0)),
    declared.Shares: of_shares,
    declared.OfSites: lambda _: st.sampled_from([{"p": 0.5}, {"p": 0.5, "q": 0.05}]),
    declared.Generator: lambda _: st.integers(0, 9).map(np.random.default_rng),
    declared.LedgerPlace: lambda _: st.just("a ledger"),
    declared.Name: lambda _: st.just("rows of ours"),
    declared.WordList: lambda _: st.just(NAMES),
}


@st.composite
def chosen(draw, task, path):
    """Some options, the others at their defaults; rows; and whether units stand beside them."""
    known, found = options_of(task, path), {}
    for name in draw(st.lists(st.sampled_from([*known]), unique=True, max_size=6)):
        domain = draw(st.sampled_from(known[name].values))
        found[name] = draw(VALUES[type(domain)](domain))
    rows = draw(st.sampled_from(["many", "few", "one", "zero", "holes", "single", "long"]))
    return found, rows, draw(st.booleans())


def rows_of(kind, *, words, units, beside, site=0):
    """A table, and the units of its rows where these stand beside it."""
    rng = np.random.default_rng((len(kind), site))
    count = {"one": 1, "few": 5}.get(kind, 40)
    rows = rng.standard_normal((count, D)) * [3.0, 2.0, 1.0, 0.5] + [0.0, 1.0, 0.0, 5.0]
    if words:
        rows = rng.integers(0, 4, (count, D)).astype(float)
    if kind == "zero":
        rows[:] = 0.0
    if kind == "holes":
        rows[rng.random(rows.shape) < 0.2] = np.nan
    if kind == "long":
        rows[0] *= 1000.0
    if kind == "single":
        rows = rows.astype(np.float32)
    people = [f"p{site}-{n % 7}" for n in range(count)]
    if beside:
        return rows, people
    frame = pd.DataFrame(rows, columns=list(NAMES))
    return (frame.assign(**{UNIT: people}) if units else frame), None


def shares_of(task, path, options):
    """A share for each step that a fit with the other options takes."""
    rest = {name: value for name, value in options.items() if name != "budget_split"}
    try:
        fit = Options(task, path, rest)
        plan = TASKS[task].make_plan(fit.on("table") if path == "sites" else fit, features=D)
    except (EigenveilError, TypeError):
        return None
    return {step: 1.0 + number for number, step in enumerate(plan.fractions)}


def tried(task, path, options, rows, beside, folder):
    """Fit; use all that a result can do. Whether there was one."""
    options = dict(options)
    if options.get("budget_split") == "those that are taken":
        options["budget_split"] = shares_of(task, path, options)
    if options.get("ledger") is not None:
        options["ledger"] = folder / f"{len(list(folder.iterdir()))}.ledger"
    sites = {"p": 0, "q": 1, "r": 2} if path == "sites" else {"": 0}
    tables = {
        name: rows_of(
            rows,
            words=TASKS[task].takes_documents,
            units=options.get("unit") is not None,
            beside=beside,
            site=number,
        )
        for name, number in sites.items()
    }
    given, groups = ({name: pair[n] for name, pair in tables.items()} for n in (0, 1))
    if path != "sites":
        given, groups = given[""], groups[""]
    units = {} if not beside or path == "tracking" else {"groups": groups}
    try:
        model = TASKS[task].estimator(path)(**options).fit(given, **units)
    except EigenveilError as error:
        said = error.hint != "", error.code != "", error.spent, error.released
        assert said == (True, True, None, ()), error  # noqa: PT017
        if options.get("ledger") is not None and options["ledger"].exists():
            standings = Ledger(options["ledger"]).standings()
            assert all(each.spent.mu_squared == each.spent.pure == 0 for each in standings)
        return False
    rows = tables[next(iter(sites))][0]
    used(model, rows if beside else rows.drop(columns=UNIT, errors="ignore"), folder)
    return True


def attributes(model):
    """Everything public that it says of itself, by name; those that it does not have left out."""
    found = {}
    for name in dir(type(model)):
        if not name.startswith("_") and not callable(getattr(type(model), name, None)):
            try:
                found[name] = getattr(model, name)
            except AttributeError:
                continue
    return found


def used(model, rows, folder):
    """Ask it everything, save it, read it, certify it, show it."""
    seen = attributes(model)
    assert isinstance(model._repr_mimebundle_()["text/plain"], str)
    scores = {}
    for name in ("transform", "predict", "predict_proba", "score_samples", "score", "mahalanobis"):
        if hasattr(model, name):
            with suppress(DataError if np.isnan(rows).any(axis=None) else ()):
                scores[name] = getattr(model, name)(rows)
    if hasattr(model, "inverse_transform") and "transform" in scores:
        assert model.inverse_transform(scores["transform"]).shape == rows.shape
    for name in ("get_covariance", "get_precision"):
        if hasattr(model, name):
            found = getattr(model, name)()
            assert np.isfinite(found).all(), (name, found)
    if not isinstance(model, StoredModel):
        return
    try:
        model.to_sklearn()
    except DataError as error:
        assert error.code == "not-exportable"  # noqa: PT017
    place = folder / "model.npz"
    model.save(place)
    again = type(model).load(place)
    same = attributes(again)
    for name, value in seen.items():
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(value, same[name], err_msg=name)
    for name, value in scores.items():
        np.testing.assert_array_equal(value, getattr(again, name)(rows), err_msg=name)
    verdict = check(model.certificate_)
    assert verdict.holds == model.guarantee_.certified, verdict.explanation
    assert str(model.guarantee_) == str(again.guarantee_)
    presenter = PRESENTERS[model._TASK]()
    shown = presenter.stored.load(place)
    json.dumps(presenter.values(shown))
    screen = Screen()
    screen.file = io.StringIO()
    screen.show(presenter.parts(shown))
    assert screen.file.getvalue()
    written = folder / "written"
    written.mkdir(exist_ok=True)
    for name, _ in presenter.write(shown, written):
        assert (written / name).stat().st_size
    presenter.compare(shown, shown)
    with suppress(DataError if np.isnan(rows).any(axis=None) else ()):
        values = presenter.new_values(shown, np.asarray(rows))
        assert values.shape == (len(rows), len(presenter.new_names(shown)))


def test_there_is_a_value_of_every_kind_of_option():
    for option in OPTIONS:
        assert all(type(domain) in VALUES for domain in option.values)


@pytest.mark.parametrize(("task", "path"), FITS)
def test_options_together_are_refused_or_give_a_result(task, path, tmp_path):
    ended = Counter()

    @settings(max_examples=EACH)
    @given(case=chosen(task, path))
    def run(case):
        options, rows, beside = case
        with warnings.catch_warnings(action="ignore"):
            ended[tried(task, path, options, rows, beside, tmp_path)] += 1

    run()
    soak_tools.count("combined", f"options of {task} ({path})", ended.total())
    assert ended[True] > EACH / 8, ended
