"""``n_components`` as a share of the variance or "auto": chosen from what was released.

Noise is seeded where a number is compared, so that these tests do not fail by chance.
"""

from __future__ import annotations

import json
import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sklearn.decomposition import PCA

import eigenveil
from eigenveil import FederatedPCA, NoisyResultWarning, PrivatePCA
from eigenveil.cli.app import main
from eigenveil.errors import PrivacyError
from eigenveil.federation.protocol.certificates import check
from eigenveil.models.model_options import MOST_COMPONENTS
from eigenveil.models.pca.derived import fewest
from eigenveil.plots import plot_score_density
from refusal_tools import refuses

RNG = np.random.default_rng(0)
# shares of the variance: 0.500, 0.250, 0.125, ...
X = (
    RNG.standard_normal((20_000, 8))
    * np.sqrt(0.5 ** np.arange(8))
    @ np.linalg.qr(RNG.standard_normal((8, 8)))[0]
)
STRONG = {"epsilon": 50.0, "delta": 1e-5, "random_state": 0}


@example(variance=[2.0, 1.0, 1.0], above=1, share=0.75)
@example(variance=[2.0, 1.0, 1.0], above=3, share=0.75)
@given(
    variance=st.lists(st.floats(0, 1e3), min_size=1, max_size=40),
    above=st.integers(0, 40),
    share=st.floats(1e-6, 1.0),
)
def test_the_fewest_that_reach_the_share_and_none_below_the_noise(variance, above, share):
    variance = np.sort(variance)[::-1]
    ratio = variance / max(variance.sum(), 1e-300)
    usable = np.arange(variance.size) < above % (variance.size + 1)
    count = fewest(ratio, usable, share)
    assert count == 1 or usable[count - 1]
    if share == 1.0:
        assert count == max(1, usable.sum())
    elif count < max(1, usable.sum()):
        assert ratio[:count].sum() >= share - 1e-9
    assert count == 1 or share == 1.0 or ratio[: count - 1].sum() < share


@pytest.mark.parametrize("share", [0.3, 0.6, 0.8, 0.9, 0.95])
@pytest.mark.parametrize("options", [{}, {"mechanism": "sketch"}, {"delta": 0.0}])
def test_as_many_as_ordinary_pca_takes_where_noise_is_small(share, options):
    model = PrivatePCA(share, **STRONG | {"row_norm": "auto"} | options).fit(X)
    assert model.n_components_ == PCA(share, svd_solver="full").fit(X).n_components_
    assert model.explained_variance_ratio_.sum() >= share
    assert model.usable_.all()
    assert model.components_.shape == (model.n_components_, 8)
    assert model.transform(X[:3]).shape == (3, model.n_components_)
    assert model.get_feature_names_out().size == model.n_components_


def test_none_below_the_noise_and_a_warning_where_the_share_is_not_reached():
    """In 100 fits 4 to 6 of the eight stand above the noise."""
    with pytest.warns(NoisyResultWarning, match=r"explain .* of the variance, not 99.0%") as caught:
        model = PrivatePCA(0.99, epsilon=0.6, delta=1e-5, random_state=0).fit(X[:2000])
    assert len(caught) == 1
    assert model.usable_.all()
    assert model.n_components_ < PCA(0.99, svd_solver="full").fit(X).n_components_
    auto = PrivatePCA("auto", epsilon=0.6, delta=1e-5, random_state=0).fit(X[:2000])
    np.testing.assert_array_equal(auto.components_, model.components_)
    whole = PrivatePCA(8, epsilon=0.6, delta=1e-5, random_state=0).fit(X[:2000])
    assert auto.n_components_ == whole.usable_.sum() < 8


def test_nothing_above_the_noise_is_one_component_that_is_not_usable():
    for share in (0.5, "auto"):
        with pytest.warns(NoisyResultWarning):
            model = PrivatePCA(share, epsilon=1e-2, random_state=0).fit(X[:50])
        assert model.usable_.tolist() == [False]


def test_all_but_the_result_follows_from_the_plan_alone():
    """The releases and their sizes are those of other rows, and of the most components."""
    other = np.roll(X, 1, axis=1) * 3.0
    fits = [PrivatePCA(0.7, epsilon=2.0).fit(rows) for rows in (X, other, np.zeros((50, 8)) + 1)]
    assert {fit.plan_.hash for fit in fits} == {fits[0].plan_.hash}
    assert fits[0].plan_.n_components == 8
    kinds = [[(one.name, one.noise.size) for one in fit.certificate_.releases] for fit in fits[:2]]
    assert kinds[0] == kinds[1]
    assert kinds[0][-1] == ("explained variance", 9)
    assert PrivatePCA("auto").fit(np.eye(60)).plan_.n_components == MOST_COMPONENTS


def test_the_certificate_holds_and_no_other_plan_passes():
    model = PrivatePCA(0.7, epsilon=2.0).fit(X)
    assert check(model.certificate_).holds
    plan = model.certificate_.plan
    for changed in ({"n_components": 4}, {"variance_share": None}, {"variance_share": 2.0}):
        forged = model.certificate_.model_copy(update={"plan": plan | changed})
        assert not check(forged).holds


@pytest.mark.parametrize("protocol", ["auto", "cape", "sketch", "dpdispca", "full"])
def test_sites_choose_as_one_table_does(protocol):
    sites = {"north": X[:9000], "south": X[9000:]}
    model = FederatedPCA(0.8, protocol=protocol, row_norm="auto", **STRONG | {"epsilon": 20.0})
    model.fit(sites)
    assert model.n_components_ == 3
    assert check(model.certificate_).word == "NOT CERTIFIED"  # seeded
    assert model.study_.components == 0.8
    secure = FederatedPCA("auto", protocol=protocol, epsilon=4.0).fit(sites)
    assert check(secure.certificate_).holds


def test_streams_choose_at_every_release():
    model = eigenveil.PrivateStreamingPCA(
        0.8, publish="continual", horizon=4, **STRONG | {"row_norm": 4.0}
    )
    for block in np.split(X, 4):
        model.partial_fit(block)
    assert model.n_components_ == 3
    assert eigenveil.PrivateStreamingPCA("auto", **STRONG).fit(X).usable_.all()


@pytest.mark.parametrize(("text", "value"), [("0.8", 0.8), ("auto", "auto")])
def test_on_the_command_line(tmp_path, capsys, text, value):
    np.save(tmp_path / "rows.npy", X[:2000])
    rows, out = str(tmp_path / "rows.npy"), str(tmp_path / "result")
    for words in (
        f"fit {rows} --components {text} --epsilon 20 --out {out} --no-plots --quiet",
        f"plan --rows 4000 --features 8 --components {text} --json --fits 1",
    ):
        with pytest.raises(SystemExit) as ended:
            main(words.split())
        assert ended.value.code == 0
    assert PrivatePCA.load(tmp_path / "result" / "model.npz").n_components == value
    named = {one["mechanism"]: one for one in json.loads(capsys.readouterr().out)}
    assert named["gaussian"]["captured_energy"] > 0.3
    assert named["power"]["captured_energy"] is None


@pytest.mark.parametrize("kind", [PrivatePCA, FederatedPCA, eigenveil.PrivateStreamingPCA])
def test_fewer_components_of_one_release_cost_nothing(kind, tmp_path):
    whole = kind(6, epsilon=4.0).fit({"a": X[:9000], "b": X[9000:]} if kind is FederatedPCA else X)
    model, file = whole.truncated(2), tmp_path / "model.npz"
    model.save(file)
    for fewer in (model, kind.load(file), pickle.loads(pickle.dumps(model))):
        assert fewer.n_components_ == 2
        for name in ("components_", "explained_variance_", "explained_variance_ratio_", "usable_"):
            np.testing.assert_array_equal(getattr(fewer, name), getattr(whole, name)[:2])
        np.testing.assert_allclose(fewer.transform(X), whole.transform(X)[:, :2])
        np.testing.assert_allclose(fewer.to_sklearn().transform(X), fewer.transform(X))
        rest = whole.total_variance_ - np.sum(whole.explained_variance_[:2])
        assert getattr(fewer, "noise_variance_", rest / 6) == pytest.approx(rest / 6)
        assert fewer.intervals()["component"].bars.lower.shape == (2, 8)
        assert fewer.certificate_ == whole.certificate_
        assert check(fewer.certificate_).holds
    assert model.truncated(6).components_.tobytes() == whole.components_.tobytes()
    for wrong in (0, 7, 0.5):
        with refuses("bad-truncation", "released 6"):
            model.truncated(wrong)
    other = replace(model._result.factors, components=-model.components_)
    with refuses("model-changed", kind=PrivacyError):
        replace(model._result, factors=other)


def test_rows_counted_along_two_components_are_not_drawn_along_one(tmp_path):
    whole, file = PrivatePCA(3, epsilon=4.0, scores=True).fit(X), tmp_path / "model.npz"
    two, one = whole.truncated(2), whole.truncated(1)
    np.testing.assert_array_equal(two.score_density_.counts, whole.score_density_.counts)
    one.save(file)
    for fewer in (one, PrivatePCA.load(file)):
        assert fewer.score_density_ is None
        with refuses("no-scores"):
            plot_score_density(fewer)
    assert one.truncated(2).score_density_ is not None  # of the same release
