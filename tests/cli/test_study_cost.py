"""What the owner is told of a study's cost is what the site's ledger will do."""

from dataclasses import replace

import pytest

from eigenveil.app.decisions import cost_of
from eigenveil.errors import PrivacyError
from eigenveil.federation.ledger.entries import Budget, SessionKey
from eigenveil.federation.ledger.ledger import Ledger
from eigenveil.federation.protocol.terms import settle
from federation_tools import study_of


@pytest.mark.parametrize("unit", ["row", "patient_id"])
@pytest.mark.parametrize("of_account", ["row", "patient_id"])
def test_an_account_of_the_studys_unit_covers_it_and_no_other(tmp_path, unit, of_account):
    names = ["a", "b", "c", "d"]
    study = study_of(columns=names, features=None, **({} if unit == "row" else {"unit": unit}))
    ledger = Ledger(tmp_path / "north.ledger")
    ledger.set_budget(Budget("default", "add-remove", 1.0, study.delta, unit=of_account))
    cost = cost_of(study, "north", ledger, "default")
    assert cost.covered == (unit == of_account)
    terms, key = settle(study), SessionKey(study.hash, "1")

    def begin():
        ledger.begin(key, replace(terms.wanted("north", "default"), unit=unit), state=b"")

    if cost.covered:
        begin()
    else:
        with pytest.raises(PrivacyError, match="counts what a"):
            begin()
