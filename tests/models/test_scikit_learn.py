"""Every estimator keeps scikit-learn's conventions, but for what it says itself."""

import pytest
from sklearn.utils.estimator_checks import check_estimator

from eigenveil import StreamingPCA
from eigenveil.models.task import TASKS

NO_CLASSIFIER = "of sparse rows, predict_proba is to have as many columns as the check has classes"
ENTRIES = "one entry that is no number makes a row that is not valid: only types are refused"
OF_PRIVATE = {"check_dtype_object": ENTRIES}
EXPECTED = {
    "PrivateGaussianMixture": {
        "check_estimator_sparse_array": NO_CLASSIFIER,
        "check_estimator_sparse_matrix": NO_CLASSIFIER,
    },
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
]


@pytest.mark.parametrize("estimator", ESTIMATORS + TRACKING, ids=str)
@pytest.mark.filterwarnings("ignore")
def test_conventions(estimator):
    expected = EXPECTED.get(type(estimator).__name__, {})
    expected = expected | (OF_PRIVATE if hasattr(estimator, "epsilon") else {})
    found = check_estimator(estimator, expected_failed_checks=expected, on_skip=None)
    assert {each["check_name"] for each in found if each["status"] == "xfail"} == set(expected)
