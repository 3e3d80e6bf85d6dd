"""One budget for all fits of a search: each asks for its part, as an account adds them up."""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral
from typing import Any, TypeVar

from sklearn.base import clone

from eigenveil.errors import BudgetExceeded, DataError
from eigenveil.federation.ledger.entries import Budget, SessionKey
from eigenveil.federation.ledger.ledger import Ledger
from eigenveil.federation.ledger.memory import MemoryStore
from eigenveil.federation.ledger.placing import Wanted, check_budget, place
from eigenveil.federation.ledger.tables import Tables
from eigenveil.models.constraints import Configured
from eigenveil.privacy.accountant import Loss, largest_that, mu_of_epsilon
from eigenveil.privacy.budget import caps_of, usual_room

E = TypeVar("E")
_THESE_ROWS, _MOST = "the rows of this search", 1_000_000


class SharedLedger(Ledger):
    """A ledger that opens the account of a number of fits with the budget of all of them."""

    def __init__(self, ledger: Ledger, total: Budget, fits: int) -> None:
        super().__init__(ledger.store, budget=ledger.given_budget)
        self._total, self._shares = total, fits

    def opening(self, usual: Budget) -> Budget:
        of_all = replace(
            usual, epsilon=self._total.epsilon, delta=self._total.delta, pure_epsilon=0.0
        )
        return super().opening(of_all)

    def reserve(
        self, tables: Tables, key: SessionKey, wanted: Wanted, *, state: bytes = b"", note: str
    ) -> None:
        try:
            super().reserve(tables, key, wanted, state=state, note=note)
        except BudgetExceeded:
            if self.store.is_kept:
                raise
            raise BudgetExceeded(
                "one-fit-too-many", fits=self._shares, epsilon=self._total.epsilon
            ) from None


def share_budget(estimator: E, fits: int) -> E:
    """A clone whose ``fits`` fits to the same rows cost its ``epsilon`` and ``delta`` together.

    For searches and cross-validation: ``GridSearchCV`` makes candidates x folds fits, and one more
    for the refit. Each asks for its part, as a ledger adds them up: of Gaussian noise a part of mu
    squared, so that each of ten has more than a quarter of epsilon 4, not a tenth. One more is
    refused, unless the account was there before, with a larger budget of its own.

    Parameters
    ----------
    estimator : PrivatePCA, or another private estimator of one table
        Its ``epsilon`` and ``delta`` are for all fits together. They are charged to its ``ledger``,
        whose account is opened with this budget where there is none; without one, to an account in
        memory, which the clones of this process share (with ``n_jobs`` give a ledger's file).
        With delta above 0 and pure noise for some steps (``mechanism="vector"``) fits are refused:
        the account has no part set aside for that.
    fits : int
        How many there will be.

    Returns
    -------
    shared : of the same class
        Not fitted; its ``epsilon`` is that of one fit.

    Raises
    ------
    DataError
        ``bad-fits``, ``no-budget-to-share``; a parameter that cannot be.
    BudgetExceeded
        Where an account is there, and what is left of it does not cover all of them.
    """
    options = estimator._options() if isinstance(estimator, Configured) else {}
    if "ledger" not in options:
        raise DataError("no-budget-to-share", estimator=type(estimator).__name__)
    if not isinstance(fits, Integral) or isinstance(fits, bool) or not 1 <= fits <= _MOST:
        raise DataError("bad-fits", fits=fits)
    ledger = MemoryStore() if options.ledger is None else options.ledger
    ledger = ledger if isinstance(ledger, Ledger) else Ledger(ledger)
    name = options.data_set or (_THESE_ROWS if options.ledger is None else ledger.given_name)
    total = Budget(
        name or _THESE_ROWS, options.adjacency, float(options.epsilon), float(options.delta)
    )
    check_budget(total)
    epsilon, taken = _part(total, int(fits))
    ledger = SharedLedger(ledger, total, int(fits))
    if name is not None and (known := ledger.budget_if_any(name)) is not None:
        place(ledger.name, ledger.books(), Wanted(name, total.adjacency, taken, unit=known.unit))
    copy: Any = clone(estimator)
    copy.set_params(epsilon=epsilon, ledger=ledger, data_set=name)
    shared: E = copy
    return shared


def _part(total: Budget, fits: int) -> tuple[float, Loss]:
    """Epsilon of one of so many fits, rounded down, and what all of them take of the account."""
    delta = total.delta
    caps = caps_of(total.epsilon, delta, room=usual_room(total.epsilon, delta))
    if delta == 0:
        epsilon, taken = caps.pure / fits, Loss(pure=caps.pure)
    else:
        taken = Loss(mu_squared=caps.mu_squared)
        epsilon = largest_that(
            lambda part: fits * mu_of_epsilon(part, delta) ** 2 <= caps.mu_squared, total.epsilon
        )
    if epsilon == 0:
        raise DataError("bad-fits", fits=fits)
    return epsilon, taken
