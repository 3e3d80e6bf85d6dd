"""Every task is whole: options, plans that come back, estimators, presenter, predictor, audit."""

import inspect
import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.utils._param_validation import InvalidParameterError

import eigenveil
from eigenveil.app.plan import _PREDICTED
from eigenveil.app.results import PRESENTERS
from eigenveil.app.study_plan import _OUTLOOKS
from eigenveil.audit.run import mechanisms
from eigenveil.errors import EigenveilError
from eigenveil.federation.study.options import OF_ONE_TABLE
from eigenveil.models.options import OPTIONS, Options, options_of
from eigenveil.models.task import TASKS, part, task_of_plan
from eigenveil.noise.source import SecureSource, SeededSource
from eigenveil.planning.protocol import _CHOICES
from eigenveil.planning.simulated import SIMULATORS

ROOT = Path(__file__).parents[1]
FEATURES = 6
ESTIMATORS = [
    (task.name, path, task.estimator(path)) for task in TASKS.values() for path in task.estimators
]
NAMES = [kind.__name__ for _, _, kind in ESTIMATORS]
PLANS = [(task.name, path) for task in TASKS.values() for path in task.plans]


# -- tasks


@pytest.mark.parametrize("name", TASKS)
def test_a_task_has_all_of_its_parts(name):
    task = TASKS[name]
    assert {"table", "sites"} <= task.estimators.keys()
    assert callable(part(task.rounds_of))
    for table in (SIMULATORS, _CHOICES, OF_ONE_TABLE, _OUTLOOKS, _PREDICTED):
        assert callable(task.own(table))
    assert all(
        issubclass(kind, PRESENTERS[name].stored) for kind in map(task.estimator, ("table",))
    )


@pytest.mark.parametrize(("name", "path"), PLANS)
def test_a_plan_comes_back_from_its_json_and_from_its_options(name, path):
    task = TASKS[name]
    plan = task.make_plan(task.options(path), features=FEATURES)
    kind = task.plan_type(json.loads(plan.model_dump_json()))
    again = kind.model_validate_json(plan.model_dump_json())
    assert again == plan
    assert again.hash == plan.hash
    assert task_of_plan(plan) is task
    assert task.make_plan(task.options_of_plan(plan), **plan.context()) == plan


@pytest.mark.parametrize("features", [2, 4, 8])
@pytest.mark.parametrize("options", [{}, {"noise_variance": 0.0}, {"sketch_size": 1}], ids=str)
def test_a_plan_of_a_sketch_comes_back_whatever_is_counted(options, features):
    """More components may be looked for than the columns of the sketch that shows them."""
    task = TASKS["gaussian-mixture"]
    plan = task.make_plan(task.options("table", pair="sketch", **options), features=features)
    assert task.make_plan(task.options_of_plan(plan), **plan.context()) == plan


@pytest.mark.parametrize("name", TASKS)
def test_a_task_is_audited_and_documented(name):
    task = TASKS[name]
    plans = [
        task.make_plan(task.options(path, **choice), features=FEATURES)
        for path in task.plans
        for option in options_of(name, path).values()
        if option.name in ("mechanism", "pair", "delta")
        for choice in [{option.name: each} for each in option.choices or (1e-6, 0.0)]
    ]
    released = {planned.statistic for plan in plans for planned in plan.schedule}
    sound = {name for name, cases in mechanisms().items() if any(c.group == "sound" for c in cases)}
    assert released
    assert released <= sound
    pages = "".join(page.read_text() for page in [ROOT / "README.md", *ROOT.glob("docs/*.md")])
    for path in task.estimators:
        assert task.estimator(path).__name__ in pages
    assert name in pages or name == "pca"


# -- estimators


@pytest.mark.parametrize(("task", "path", "kind"), ESTIMATORS, ids=NAMES)
def test_a_constructor_takes_the_declared_options_with_their_defaults(task, path, kind):
    declared = options_of(task, path)
    parameters = dict(inspect.signature(kind.__init__).parameters)
    del parameters["self"]
    assert parameters.keys() == declared.keys()
    for name, option in declared.items():
        assert parameters[name].default == option.default, name
    assert kind._parameter_constraints.keys() == declared.keys()
    assert kind.__name__ in eigenveil.__all__


def test_an_option_is_declared_once_a_task_and_path():
    for task in TASKS:
        for path in ("table", "sites", "stream", "tracking"):
            names = [o.name for o in OPTIONS if task in o.tasks and path in o.paths]
            assert len(names) == len(set(names))


@pytest.mark.parametrize("option", OPTIONS, ids=lambda o: f"{o.name}-{o.tasks[0]}-{o.paths[0]}")
def test_a_default_is_allowed_and_examples_are(option):
    assert option.has(option.default)
    assert all(option.has(example) for example in option.examples)
    assert option.help.endswith(".")


# -- values that cannot be

NAN, INF = float("nan"), float("inf")
VALUES = [
    -1, 0, 1, 2, 2.5, True, np.True_, np.int64(-3), np.float64(NAN), NAN, INF, -INF, 10**400, 1e308,
    1e-320, "2", "mle", "auto", "nope", "", b"2", None, (), [NAN], [1.0, "a"], (10, 1), (1, 2, 3),
    {}, {"center": 1.0}, {"moment": -1.0}, {"moment": NAN}, {"moment": "1"}, {3: 1.0}, 1j, object,
    {"a": -1.0}, np.zeros(1), {1.0}, print, 10**30, -1e-9, 1e-9, 1e9, 1001, [2], ["auto"], [0, 0],
    [-1], [True], [0, "b"], [NAN] * 4, [[NAN] * 4, [1.0] * 4], "a\n", "yes", {"moment": True},
    {"moment": 1e308, "scale": 1e308}, {"moment": 1.0, "scale": 1e-300}, {"nope": 1.0}, {"a": "1"},
    {"a": 1e308},
]  # fmt: skip
BAD = [
    pytest.param(task, path, kind, option, id=f"{kind.__name__}-{name}")
    for task, path, kind in ESTIMATORS
    for name, option in options_of(task, path).items()
]


def test_most_values_are_bad_somewhere():
    for option in OPTIONS:
        assert sum(not option.has(value) for value in VALUES) > len(VALUES) / 2
    # what the declaration is worth: these, which it must not allow, are told apart by hand
    for kind, name, value in [
        ("PrivatePCA", "n_components", 2.5),
        ("PrivatePCA", "n_components", True),
        ("PrivatePCA", "n_components", "2"),
        ("PrivatePCA", "n_components", "mle"),
        ("PrivatePCA", "random_state", "a"),
        ("PrivatePCA", "mechanism", "nope"),
        ("PrivatePCA", "power_rounds", -1),
        ("PrivatePCA", "epsilon", -1),
        ("PrivatePCA", "budget_split", 3),
        ("PrivateTopicModel", "delta", NAN),
        ("FederatedPCA", "site_epsilon", {"a": NAN}),
        ("StreamingPCA", "forgetting", 0),
        ("PrivateStreamingPCA", "center", True),
    ]:
        task, path, _ = next(each for each in ESTIMATORS if each[2].__name__ == kind)
        assert not options_of(task, path)[name].has(value)


@pytest.mark.parametrize(("task", "path", "kind", "option"), BAD)
def test_a_value_that_cannot_be_is_refused_before_anything_is_released(
    task, path, kind, option, monkeypatch
):
    drawn = []
    for source in (SecureSource, SeededSource):
        monkeypatch.setattr(source, "words", lambda *_: drawn.append(1) or 1 / 0)
    rows = np.ones((40, 4))
    for value in VALUES:
        if option.has(value):
            continue
        model = kind(**{option.name: value})
        with pytest.raises(InvalidParameterError) as caught:
            model.fit({"a": rows, "b": rows.copy()} if path == "sites" else rows)
        error = caught.value
        assert isinstance(error, EigenveilError)
        assert isinstance(error, ValueError)
        assert isinstance(error, TypeError)
        assert error.code == "bad-parameter"
        assert error.hint
        assert f"The {option.name!r} parameter of {kind.__name__} must be" in error.message
        assert "Got " in error.message
        assert not drawn
        assert error.spent is None
        assert error.released == ()
        # scikit-learn's own constraints, and the plan's options, refuse the same
        assert not any(c.is_satisfied_by(value) for c in kind._parameter_constraints[option.name])
        with pytest.raises(InvalidParameterError):
            Options(task, path, {option.name: value})


# -- options that do not go together

UNUSED = [
    ("PrivatePCA", {"mechanism": "gaussian", "sketch_size": 3}, "sketch_size"),
    ("PrivatePCA", {"mechanism": "power", "sketch_size": 3}, "sketch_size"),
    ("PrivatePCA", {"power_rounds": 3}, "power_rounds"),
    ("PrivatePCA", {"mechanism": "sketch", "power_rounds": 3}, "power_rounds"),
    ("PrivateGaussianMixture", {"pair": "full", "sketch_size": 3}, "sketch_size"),
    ("PrivateTopicModel", {"pair": "full", "sketch_size": 3}, "sketch_size"),
    ("FederatedPCA", {"protocol": "cape", "sketch_size": 3}, "sketch_size"),
    ("FederatedPCA", {"protocol": "full", "sketch_size": 3}, "sketch_size"),
    ("FederatedGaussianMixture", {"protocol": "cape", "sketch_size": 3}, "sketch_size"),
    ("FederatedTopicModel", {"protocol": "cape", "sketch_size": 3}, "sketch_size"),
    ("PrivateStreamingPCA", {"horizon": 3}, "horizon"),
]
SPLITS = [
    # an estimator, other options, the steps that it takes
    ("PrivatePCA", {}, "scale center moment variance"),
    ("PrivatePCA", {"center": False}, "scale moment variance"),
    ("PrivatePCA", {"scale": "private"}, "columns scale center moment variance"),
    ("PrivatePCA", {"scale": [1.0, 1.0, 1.0, 1.0]}, "scale center moment variance"),
    ("PrivatePCA", {"covariates": [1]}, "scale center covariates moment variance"),
    ("PrivatePCA", {"row_bound": 3.0}, "center moment variance"),
    ("FederatedPCA", {}, "scale center moment variance"),
    ("FederatedPCA", {"center": False, "row_bound": 3.0}, "moment variance"),
    ("PrivateGaussianMixture", {}, "scale center scores moment tensor sums"),
    ("PrivateGaussianMixture", {"covariance_type": "full"}, "scale center scores moment sums"),
    (
        "PrivateGaussianMixture",
        {"covariance_type": "tied", "row_bound": 3.0},
        "center scores moment sums",
    ),
    ("PrivateGaussianMixture", {"center": False}, "scale scores moment tensor sums"),
    ("FederatedGaussianMixture", {"center": False}, "scale scores moment tensor sums"),
    ("PrivateCovariance", {}, "scale center moment"),
    ("PrivateCovariance", {"center": False}, "scale moment"),
    ("PrivateTopicModel", {}, "scale moment tensor"),
    ("PrivateTopicModel", {"clip_documents": False}, "moment tensor"),
    ("FederatedTopicModel", {"clip_documents": False}, "moment tensor"),
    ("PrivateTopicModel", {"alpha0": 1.0}, "scale center moment tensor"),
    ("FederatedTopicModel", {"alpha0": 1.0}, "scale center moment tensor"),
]


IGNORED = ("no-sketch-made", "sketch-not-sent", "unused-parameter")
IGNORED += ("no-units-to-bound", "data-set-without-ledger")


def counted(kind):
    return {} if kind == "PrivateCovariance" else {"n_components": 2}


def refused(kind, options, monkeypatch):
    drawn = []
    for source in (SecureSource, SeededSource):
        monkeypatch.setattr(source, "words", lambda *_: drawn.append(1) or 1 / 0)
    rows = np.full((40, 4), 2.0)
    with pytest.raises(InvalidParameterError) as caught:
        getattr(eigenveil, kind)(**counted(kind) | options).fit(
            {"a": rows, "b": rows.copy()} if kind.startswith("Federated") else rows
        )
    assert isinstance(caught.value, EigenveilError)
    assert caught.value.hint
    assert not drawn
    return caught.value


@pytest.mark.parametrize(("kind", "options", "name"), UNUSED)
def test_an_option_that_would_be_ignored_is_refused(kind, options, name, monkeypatch):
    error = refused(kind, options, monkeypatch)
    assert error.code in IGNORED
    assert name in error.message


@pytest.mark.parametrize(("kind", "options", "steps"), SPLITS)
def test_a_split_gives_every_step_that_is_taken_a_share_and_no_other(
    kind, options, steps, monkeypatch
):
    steps = steps.split()
    whole = dict.fromkeys(steps, 1.0)
    task, path, _ = next(each for each in ESTIMATORS if each[2].__name__ == kind)
    known = options_of(task, path)["budget_split"].values[0].steps
    for step in known:
        if step in steps and step != "variance":
            split, code = {name: 1.0 for name in steps if name != step}, "step-without-share"
        elif step not in steps:
            split, code = whole | {step: 1.0}, "unneeded-step"
        else:
            continue
        error = refused(kind, options | {"budget_split": split}, monkeypatch)
        assert error.code == code
        assert repr(step) in error.message
    # 0 is none
    table = dict(options)
    for step in set(known) - set(steps):
        split = whole | {step: 0.0}
        made = TASKS[task].make_plan(
            Options(task, "table", table | counted(kind) | {"budget_split": split}),
            features=4,
        )
        assert set(made.fractions) == set(steps)
