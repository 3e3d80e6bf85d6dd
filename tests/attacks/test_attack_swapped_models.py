"""A model under a certificate that is not its own."""

import copy
import json
import pickle
import shutil
import warnings
from dataclasses import replace

import numpy as np
import pytest

from eigenveil import (
    FederatedGaussianMixture,
    FederatedPCA,
    FederatedTopicModel,
    PrivateGaussianMixture,
    PrivatePCA,
    PrivateStreamingPCA,
    PrivateTopicModel,
)
from eigenveil.errors import DataError, NoisyResultWarning, PrivacyError
from eigenveil.federated.running import run_study, site_rows
from eigenveil.federation.tree.private import make_tree_study
from eigenveil.federation.tree.tree import MergeTree
from eigenveil.models.pca.estimator import FittedPCA
from eigenveil.models.result import model_digest
from eigenveil.network.results import read_result_files, write_result_files
from eigenveil_papers.trees.simulated import simulate_tree
from results_tools import shown_by, with_factors

RNG = np.random.default_rng(5)
ROWS = RNG.normal(size=(900, 4)) + 5.0 * np.eye(2, 4)[RNG.integers(2, size=900)]
COUNTS = RNG.multinomial(12, np.repeat(np.eye(2), 3, axis=1)[RNG.integers(2, size=3000)] / 3)
WISH = {"epsilon": 9.0}
KINDS = {
    "PrivatePCA": lambda: PrivatePCA(2, **WISH).fit(ROWS),
    "PrivateStreamingPCA": lambda: PrivateStreamingPCA(2, **WISH).fit(ROWS),
    "continual": lambda: PrivateStreamingPCA(2, publish="continual", horizon=1, **WISH).fit(ROWS),
    "PrivateGaussianMixture": lambda: PrivateGaussianMixture(2, **WISH).fit(ROWS),
    "PrivateTopicModel": lambda: PrivateTopicModel(2, **WISH).fit(COUNTS),
    "FederatedPCA": lambda: FederatedPCA(2, **WISH).fit([ROWS[:400], ROWS[400:]]),
    "FederatedGaussianMixture": lambda: FederatedGaussianMixture(2, **WISH).fit(
        [ROWS[:400], ROWS[400:]]
    ),
    "FederatedTopicModel": lambda: FederatedTopicModel(2, **WISH).fit(
        [COUNTS[:1000], COUNTS[1000:]]
    ),
}


@pytest.fixture(scope="module", params=sorted(KINDS))
def model(request):
    return KINDS[request.param]()


def changed(call):
    with pytest.raises(PrivacyError) as caught:
        call()
    assert caught.value.code == "model-changed", caught.value
    assert caught.value.hint


def rewritten(path, target, *, arrays=None, **header):
    """A model's file with something in it replaced."""
    with np.load(path) as stored:
        parts = {name: stored[name] for name in stored.files}
    reported = json.loads(str(parts["header"][()])) | header
    np.savez(target, **(parts | {"header": np.array(json.dumps(reported))} | (arrays or {})))


def test_nothing_that_is_shown_can_be_set_or_written(model):
    before = copy.copy(model)
    for name, value in shown_by(model).items():
        with pytest.raises(AttributeError):
            setattr(model, name, value)
        with pytest.raises(AttributeError):
            delattr(model, name)
        if isinstance(value, np.ndarray) and name not in ("feature_names_in_", "covariances_"):
            for each in (model, pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
                with pytest.raises(ValueError, match="read-only"):
                    getattr(each, name)[...] = 0
                with pytest.raises(ValueError, match="WRITEABLE"):
                    getattr(each, name).flags.writeable = True
    model.certificate_.plan["epsilon"] = 0.001
    model.plan_.fractions.clear()
    assert model.certificate_ == before.certificate_
    assert model.plan_ == before.plan_


def test_nothing_is_there_before_the_fit(model):
    empty = type(model)()
    assert not shown_by(empty)
    for name in shown_by(model):
        assert not hasattr(empty, name)


def test_the_digest_is_of_everything(model):
    result, made = model._result, model.certificate_.model
    seen = {made}
    for name, value in vars(result.factors).items():
        if isinstance(value, np.ndarray) and value.size:
            other = value.copy()
            flat = other.reshape(-1)
            flat[-1] = not flat[-1] if other.dtype == bool else np.nextafter(flat[-1], 9e9)
            others = [other, value[..., None]]
        elif isinstance(value, float):
            others = [np.nextafter(value, 9e9)]
        else:
            continue
        for other in others:
            factors = replace(result.factors, **{name: other})
            seen.add(model_digest(factors, features=result.features, names=result.names))
    for other in (
        {"features": 99, "names": result.names},
        {"features": result.features, "names": ["a"] * result.features},
    ):
        seen.add(model_digest(result.factors, **other))
    assert len(seen) > len(vars(result.factors)) // 2 + 3
    assert made == model_digest(result.factors, features=result.features, names=result.names)


def test_what_was_changed_behind_the_views_is_not_saved(model, tmp_path):
    result = model._result
    other = copy.copy(model)
    name = next(n for n, v in vars(result.factors).items() if isinstance(v, np.ndarray))
    for field, value in (
        ("factors", replace(result.factors, **{name: np.ones((2, 4))})),
        ("names", ("a", "b")),
        ("features", 17),
        ("certificate", result.certificate.model_copy(update={"noise_source": "seeded"})),
        ("spec", replace(result.spec, parameters={"epsilon": 0.001})),
    ):
        other._result = copy.copy(result)
        object.__setattr__(other._result, field, value)
        changed(lambda: other.save(tmp_path / "model.npz"))
        assert not (tmp_path / "model.npz").exists()


def test_a_later_wish_is_not_saved(model, tmp_path):
    other = copy.copy(model).set_params(epsilon=0.001, random_state=3)
    other.save(tmp_path / "model.npz")
    again = type(model).load(tmp_path / "model.npz")
    assert again.epsilon == 9.0
    assert again.guarantee_ == model.guarantee_
    assert again.get_params() | {"epsilon": 9.0} == again.get_params()


def test_a_file_whose_parts_do_not_belong_together_is_not_loaded(model, tmp_path):
    path, bad = tmp_path / "model.npz", tmp_path / "bad.npz"
    model.save(path)
    with np.load(path) as stored:
        reported = json.loads(str(stored["header"][()]))
        arrays = {name: stored[name] for name in stored.files if name != "header"}
    name = max(arrays, key=lambda each: arrays[each].size)
    rewritten(path, bad, arrays={name: arrays[name] + 1e-12})
    changed(lambda: type(model).load(bad))
    for header in (
        {"names": ["x"] * reported["features"]},
        {"certificate": reported["certificate"] | {"model": "00" * 32}},
        {"parameters": reported["parameters"] | {"epsilon": 0.1}},
        {"numbers": reported["numbers"] | {"noise_floor": 0.0}},
    ):
        rewritten(path, bad, **header)
        changed(lambda: type(model).load(bad))
    rewritten(path, bad, features=reported["features"] + 1)
    with pytest.raises(DataError):
        type(model).load(bad)
    rewritten(path, bad)
    assert type(model).load(bad).certificate_ == model.certificate_


def test_certify_holds_for_the_model_beside_it_only(run, tmp_path):
    first, second = KINDS["PrivatePCA"](), KINDS["PrivatePCA"]()
    for name, model in (("a", first), ("b", second)):
        (tmp_path / name).mkdir()
        model.save(tmp_path / name / "model.npz")
        model.certificate_.write(tmp_path / name / "certificate.json")
    assert run("certify", tmp_path / "a")[0] == 0
    for swapped in ("model.npz", "certificate.json"):
        place = tmp_path / f"with-other-{swapped}"
        shutil.copytree(tmp_path / "a", place)
        shutil.copy(tmp_path / "b" / swapped, place / swapped)
        for asked in (place, place / "certificate.json"):
            status, out, _ = run("certify", asked)
            assert (status, out.splitlines()[0]) == (8, "NOT VALID")
            assert "is not the certificate that" in out.replace("\n", " ")
    forged = tmp_path / "forged"
    shutil.copytree(tmp_path / "a", forged)
    with np.load(forged / "model.npz") as stored:
        moved = stored["components"] + 1e-9
    rewritten(forged / "model.npz", forged / "new.npz", arrays={"components": moved})
    (forged / "new.npz").replace(forged / "model.npz")
    assert run("certify", forged)[0] == 8
    (forged / "model.npz").unlink()
    assert run("certify", forged)[0] == 8
    alone = tmp_path / "alone.json"
    shutil.copy(tmp_path / "a" / "certificate.json", alone)
    assert run("certify", alone)[0] == 0


def test_a_fetched_result_is_of_one_study(tmp_path):
    """The files that an aggregator sends to the lead."""
    folders = []
    for number, parts in enumerate(([ROWS[:400], ROWS[400:]], [ROWS[:300], ROWS[300:]])):
        model = FederatedPCA(2, **(WISH if number == 0 else {"epsilon": 8.0}))
        rows = site_rows(parts, for_one="")
        finished = run_study(model.study_of(rows), rows, source=secure())
        folders.append(tmp_path / str(number))
        folders[-1].mkdir()
        write_result_files(finished, folders[-1], session="s", seconds=1.0, seconds_by_step={})
    read = read_result_files(folders[0], choice="why")
    assert (read.epsilon, read.n_components, read.choice_) == (9.0, 2, "why")
    assert read.study_.model_dump(mode="json") == read.certificate_.study
    assert list(read.views_) == ["outsider", "site", "aggregator"]
    for name in ("model.npz", "certificate.json", "summary.json"):
        place = tmp_path / f"mixed-{name}"
        shutil.copytree(folders[0], place)
        shutil.copy(folders[1] / name, place / name)
        changed(lambda place=place: read_result_files(place))


def secure():
    from eigenveil.noise.source import SecureSource

    return SecureSource()


def test_a_trees_certificate_is_of_its_components():
    study = make_tree_study(
        MergeTree(fan_out=2, depth=2), features=5, n_components=2, epsilon=9.0, delta=1e-6
    )
    outcome = simulate_tree(study, rows=30).outcome
    assert outcome.certificate.model == model_digest(outcome.factors, features=5, names=None)
    with pytest.raises(ValueError, match="read-only"):
        outcome.factors.components[:] = 0


def test_a_result_of_nothing_but_noise_is_told():
    model = KINDS["PrivatePCA"]()
    none = with_factors(model, usable=np.zeros(2, dtype=bool), advice="")._result
    with pytest.warns(NoisyResultWarning, match="nothing of the data") as caught:
        model._take_over(none)
    assert caught[0].filename == __file__
    some = with_factors(model, usable=np.array([True, False]), advice="")._result
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model._take_over(some)


def test_a_file_says_who_was_asked(tmp_path):
    """Saved again by the family's own class, it is still the estimator's file."""
    path = tmp_path / "model.npz"
    KINDS["PrivatePCA"]().save(path)
    FittedPCA.load(path).save(path)
    assert PrivatePCA.load(path).epsilon == 9.0
