"""Certificates as events of dp_accounting: its accountants find what the certificate says."""

import numpy as np
import pytest

from eigenveil import FederatedPCA, PrivacyError, PrivatePCA
from eigenveil.privacy.elsewhere import dp_event

accounting = pytest.importorskip("dp_accounting", reason="dp_accounting is not installed")
ROWS = np.random.default_rng(0).normal(size=(400, 3)) * [5.0, 2.0, 1.0]


@pytest.mark.parametrize("delta", [1e-6, 1e-3])
def test_an_accountant_finds_the_certificates_epsilon(delta):
    certificate = PrivatePCA(1, epsilon=3.0, delta=delta).fit(ROWS).certificate_
    accountant = accounting.pld.PLDAccountant(value_discretization_interval=1e-3)
    accountant.compose(dp_event(certificate))
    epsilon = certificate.guarantee().epsilon
    assert accountant.get_epsilon(delta) == pytest.approx(epsilon, rel=5e-3)


@pytest.mark.parametrize(
    "fit",
    [
        lambda: PrivatePCA(1, epsilon=3.0, random_state=0).fit(ROWS),
        lambda: PrivatePCA(1, epsilon=30.0, delta=0.0).fit(ROWS),
        lambda: FederatedPCA(1, epsilon=3.0).fit({"a": ROWS, "b": ROWS + 1.0}),
    ],
)
def test_what_one_event_does_not_say_is_refused(fit):
    with pytest.raises(PrivacyError) as caught:
        dp_event(fit().certificate_)
    assert caught.value.code == "no-event"
