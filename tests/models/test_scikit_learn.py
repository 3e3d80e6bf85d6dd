"""Every estimator keeps scikit-learn's conventions, but for what it says itself."""

import pytest
from sklearn.utils.estimator_checks import check_estimator

from eigenveil import StreamingPCA
from eigenveil.models.task import TASKS

NO_CLASSIFIER = "of sparse rows, predict_proba is to have as many columns as the check has classes"
ENTRIES = "one entry that is no number makes a row that is not valid: only types are refused"
ONE = "n_components = 1, which is refused: nothing is unmixed of one source"
OF_ONE = (
    *("check_fit2d_1sample", "check_fit2d_1feature", "check_fit2d_predict1d"),
    *("check_dont_overwrite_parameters", "check_methods_subset_invariance"),
    "check_methods_sample_order_invariance",
)
OF_PRIVATE = dict.fromkeys(("check_dtype_object", "check_estimators_nan_inf"), ENTRIES)
EXPECTED = {
    "PrivateGaussianMixture": {
        "check_estimator_sparse_array": NO_CLASSIFIER,
        "check_estimator_sparse_matrix": NO_CLASSIFIER,
    },
    "PrivateICA": dict.fromkeys(OF_ONE, ONE),
    "PrivateStreamingPCA": {
        "check_fit_score_takes_y": "it adds rows after fit, which has released the stream"
    },
}
ESTIMATORS = [
    make(**options)
    for task in TASKS.values()
    for path in sorted(task.estimators.keys() - {"sites", "tracking"})
    for make in [task.estimator(path)]
    for options in ({}, {"random_state": 0})[path == "stream" :]
]
TRACKING = [
    StreamingPCA(block_size=3, center=True),
    StreamingPCA(adaptive_rank=(1, 10), forgetting=0.9, n_oversamples=2),
    StreamingPCA(missing="fill"),
]


@pytest.mark.parametrize("estimator", ESTIMATORS + TRACKING, ids=str)
@pytest.mark.filterwarnings("ignore")
def test_conventions(estimator):
    expected = EXPECTED.get(type(estimator).__name__, {})
    expected = expected | (OF_PRIVATE if hasattr(estimator, "epsilon") else {})
    found = check_estimator(estimator, expected_failed_checks=expected, on_skip=None)
    made = {each["check_name"] for each in found if each["status"] != "skipped"}
    failed = {each["check_name"] for each in found if each["status"] == "xfail"}
    assert failed == expected.keys() & made
