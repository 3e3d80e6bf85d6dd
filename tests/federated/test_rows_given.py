"""What a caller gives as rows and cannot be meant so: refused, with a sentence that says where."""

import numpy as np
import pytest

import eigenveil
from eigenveil import (
    FederatedGaussianMixture,
    FederatedPCA,
    FederatedTopicModel,
    PrivateGaussianMixture,
    PrivatePCA,
    PrivateStreamingPCA,
    PrivateTopicModel,
    StreamingPCA,
)
from eigenveil.federated.running import site_rows
from eigenveil.federated.tree_fit import fit_tree
from eigenveil.federation.tree.private import make_tree_study
from eigenveil.federation.tree.tree import MergeTree
from eigenveil.io import ReadOptions, open_rows
from eigenveil.io.formats.dialect import Dialect
from eigenveil.moments.source import ArrayRows
from eigenveil.privacy.certificate import CLOSED_QUOTES
from refusal_tools import refuses

ROWS = np.random.default_rng(5).normal(size=(60, 4))
HUGE = ROWS.astype(object)
HUGE[3, 2] = 10**400
COUNTS = np.full((20, 3), 2, dtype=object)
COUNTS[4, 1] = 10**400


@pytest.mark.parametrize("model", [FederatedPCA(2), FederatedGaussianMixture(2)])
@pytest.mark.parametrize(
    "X", [{"a": ROWS, "b": ROWS.copy(), "c": ROWS}, [ROWS, ROWS.copy(), ROWS]], ids=["map", "list"]
)
def test_one_array_for_two_sites_is_refused_as_one_file_is(model, X):
    with refuses("rows-twice", "count twice") as caught:
        model.fit(X)
    assert caught.value.message.startswith("site c" if isinstance(X, dict) else "site site3")


def test_one_source_of_rows_for_two_sites_is_refused_too():
    rows = ArrayRows(ROWS)
    with refuses("rows-twice", r"site b: .* site a"):
        FederatedPCA(2).fit_rows({"a": rows, "b": rows})


def test_equal_rows_of_two_sites_are_no_error():
    assert list(site_rows({"a": ROWS, "b": ROWS.copy()}, for_one="PrivatePCA")) == ["a", "b"]


CALLS = {
    "PrivatePCA": lambda: PrivatePCA(2).fit(HUGE),
    "PrivateGaussianMixture": lambda: PrivateGaussianMixture(2).fit(HUGE),
    "PrivateTopicModel": lambda: PrivateTopicModel(2).fit(COUNTS),
    "PrivateStreamingPCA": lambda: PrivateStreamingPCA(2, center=False).partial_fit(HUGE).release(),
    "FederatedPCA": lambda: FederatedPCA(2).fit({"a": HUGE, "b": ROWS}),
    "FederatedGaussianMixture": lambda: FederatedGaussianMixture(2).fit({"a": HUGE, "b": ROWS}),
    "FederatedTopicModel": lambda: FederatedTopicModel(2).fit({"a": COUNTS, "b": COUNTS.copy()}),
}


@pytest.mark.filterwarnings("ignore::eigenveil.errors.NoisyResultWarning")
@pytest.mark.parametrize("call", CALLS)
def test_a_row_with_a_number_that_no_float_holds_is_left_out(call):
    """Whether there is a result is no matter of one row."""
    assert CALLS[call]().guarantee_.certified


@pytest.mark.filterwarnings("ignore::eigenveil.errors.NoisyResultWarning")
@pytest.mark.parametrize(
    "call",
    [
        lambda: PrivatePCA(2, epsilon=9.0).fit(ROWS).transform(HUGE),
        lambda: StreamingPCA(2).partial_fit(HUGE),
    ],
    ids=["PrivatePCA.transform", "StreamingPCA"],
)
def test_where_nothing_is_private_it_is_an_error_of_the_data(call):
    with refuses("beyond-float", "beyond what a float can hold"):
        call()


def test_every_estimator_that_takes_rows_is_tried():
    kinds = {name for name in eigenveil.__all__ if name.endswith(("PCA", "Mixture", "TopicModel"))}
    assert kinds == {*CALLS, "StreamingPCA"}


def of_a_study(sites):
    return FederatedPCA(1, epsilon=9.0, random_state=0).fit_rows(sites)


def of_a_tree(sites):
    shape = MergeTree.with_leaves(2, fan_out=2)
    study = make_tree_study(shape, features=4, n_components=1, epsilon=9.0, delta=1e-6)
    return fit_tree(study, sites, random_state=0)


@pytest.mark.filterwarnings("ignore::eigenveil.errors.NoisyResultWarning")
@pytest.mark.parametrize("fit", [of_a_study, of_a_tree])
@pytest.mark.parametrize("newlines", [False, True])
def test_newlines_in_cells_of_any_site_are_stated(fit, newlines, tmp_path):
    """A site says so itself where it joins: in a study over a network nobody else knows."""
    sites = {}
    for name, own in (("a", False), ("b", newlines)):
        np.savetxt(tmp_path / f"{name}.csv", ROWS, delimiter=",", header="a,b,c,d", comments="")
        read = ReadOptions(dialect=Dialect(newlines_in_cells=own))
        sites[name] = open_rows([tmp_path / f"{name}.csv"], read=read)
    found = fit(sites).certificate_.assumptions
    assert (CLOSED_QUOTES in found) == newlines
