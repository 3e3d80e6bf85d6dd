"""Fits of one table as sessions of its owner's ledger: a study with one site.

A fit is charged to every account that holds one of its files, and to the one that its owner names:
naming another account does not make a table new. All are reserved together or none is. Each release
is charged in all of them before its noise is drawn.
"""

from __future__ import annotations

import os
import secrets
import shlex
import warnings
from collections.abc import Sequence

from eigenveil.errors import EigenveilError, LedgerWarning, callers_level
from eigenveil.federation.ledger.entries import UNIT, SessionKey, budget_command
from eigenveil.federation.ledger.file_marks import marks_of, usual_name
from eigenveil.federation.ledger.ledger import Begun, Budget, Draft, FitRequest, Ledger
from eigenveil.federation.ledger.placing import Wanted
from eigenveil.files import Place
from eigenveil.models.charging import FitTerms, no_data_set
from eigenveil.privacy.releases import ReleaseRecord


def begin_fit(
    place: str | os.PathLike[str] | Ledger,
    data_set: str | None,
    files: Sequence[Place] | None,
    terms: FitTerms,
) -> FitCharges:
    """Reserve what a fit may cost; the ledger, and the account of its rows, are made if absent.

    An account that is opened gets the fit's own target for its budget, or the ledger's ``budget``;
    a :class:`~eigenveil.errors.LedgerWarning` says so.
    """
    ledger = place if isinstance(place, Ledger) else Ledger(place)
    given = ledger.given_budget
    name = data_set or (None if given is None else given.data_set)
    if name is None and not files:
        raise no_data_set()
    usual = Budget(
        data_set=name or usual_name(files or ()),
        adjacency=terms.adjacency,
        epsilon=terms.epsilon,
        delta=terms.delta,
        pure_epsilon=terms.pure_part,
        unit=terms.unit or UNIT,
    )
    if given is not None and given.data_set == name:
        usual = given
    request = FitRequest(
        study=f"fit-{secrets.token_hex(8)}",
        named=name is not None,
        budget=usual,
        wanted=Wanted(
            usual.data_set, terms.adjacency, terms.reserve, terms.replacing, terms.unit or UNIT
        ),
        note=terms.note,
    )
    if files:
        # refused by what is known without reading them, where that is enough
        request = request.with_marks(marks_of(files, ledger.key_for(request, files)))
    begun = ledger.begin_fit(request)
    for text in _news(ledger, begun):
        warnings.warn(text, LedgerWarning, stacklevel=callers_level())
    return FitCharges(ledger, begun.keys, begun.accounts)


class FitCharges:
    """The sessions of one fit, one an account; :class:`eigenveil.models.charging.Charges`."""

    counted = True

    def __init__(
        self, ledger: Ledger, keys: tuple[SessionKey, ...], accounts: tuple[str, ...]
    ) -> None:
        self._ledger, self._keys = ledger, keys
        self.accounts = (ledger.name, *accounts)
        self._step = 0

    def charge(self, records: Sequence[ReleaseRecord]) -> None:
        """Charge releases in every account, durably."""
        self._step += 1
        for key in self._keys:
            self._ledger.commit(
                key,
                f"round {self._step}",
                request=b"",
                draft=lambda *_: Draft(lambda: (b"", None), charges=records),
            )

    def end(self, outcome: str) -> None:
        """End the sessions; should that fail, what they reserved stays so, and nothing else."""
        keys, self._keys = self._keys, ()
        for key in keys:
            try:
                self._ledger.end(key, outcome)
            except EigenveilError as error:
                warnings.warn(
                    f"{error} What the fit reserved and did not need stays reserved until "
                    f"'eigenveil ledger end {shlex.quote(self._ledger.name)} --study {key.study}'.",
                    LedgerWarning,
                    stacklevel=callers_level(),
                )


def _news(ledger: Ledger, begun: Begun) -> list[str]:
    """What the owner should know of how a fit was begun."""
    found = []
    main = begun.accounts[0]
    if begun.opened is not None:
        budget = begun.opened
        found.append(
            f"{ledger.name}: opened an account for {main!r}, with a budget of epsilon = "
            f"{budget.epsilon:g} at delta = {budget.delta:g} for all of its fits together; to set "
            "another: "
            f"{budget_command(ledger.name, main, adjacency=budget.adjacency, unit=budget.unit)} "
            "--reason WHY."
        )
    if begun.changed:
        found.append(
            f"{ledger.name}: {begun.changed} of the files changed since they were charged last, "
            "and keep their account: rows in both versions pay for both."
        )
    if begun.moved:
        found.append(
            f"{ledger.name}: {begun.moved} of the files were charged before from another place, "
            f"and keep that account: {', '.join(map(repr, begun.accounts))}."
        )
    if begun.joined and begun.opened is None:
        found.append(
            f"{ledger.name}: {begun.joined} of the files are new, and belong to {main!r} from now "
            "on."
        )
    if len(begun.accounts) > 1:
        found.append(
            f"{ledger.name}: the fit is charged to all accounts that its files belong to: "
            f"{', '.join(map(repr, begun.accounts))}."
        )
    return found
