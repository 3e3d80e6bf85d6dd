"""What every fitted model is: released values, a plan, a certificate, and a file of them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from eigenveil.checks import LARGEST, check_whole
from eigenveil.errors import DataError, OutputError, printable
from eigenveil.estimators.plans import BasePlan
from eigenveil.estimators.stored_checks import NOT_A_MODEL, check_model_arrays
from eigenveil.files import replacing
from eigenveil.noise.source import RandomSource, SecureSource, SeededSource
from eigenveil.privacy.certificate import Certificate

_MODEL_FORMAT = "eigenveil-model-1"
# Models of the first version said no more than this.
_FIRST_ESTIMATOR = "PrivatePCA"


class StoredModel(BaseEstimator):  # type: ignore[misc]
    """A fitted model that can be saved, loaded and certified.

    A family of models, such as all of PCA, has one class with ``_FAMILY``, the names of the
    estimators whose files it reads; estimators are its sub-classes and read only their own.
    """

    _ARRAYS: ClassVar[tuple[str, ...]]
    _NUMBERS: ClassVar[tuple[str, ...]]
    _FAMILY: ClassVar[tuple[str, ...]]
    _PLAN: ClassVar[type[BasePlan]]

    plan_: BasePlan
    certificate_: Certificate

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted estimator to one file (numpy's format with JSON inside, no pickle)."""
        self._check_fitted()
        names = getattr(self, "feature_names_in_", None)
        header = {
            "format": _MODEL_FORMAT,
            "estimator": type(self).__name__,
            "parameters": _plain(self.get_params()),
            "features": self.n_features_in_,
            "names": None if names is None else [str(name) for name in names],
            "numbers": {name: float(getattr(self, name)) for name in self._NUMBERS},
            "plan": self.plan_.model_dump(mode="json"),
            "certificate": self.certificate_.model_dump(mode="json"),
        }
        arrays = {name: getattr(self, name) for name in self._ARRAYS}
        with replacing(Path(path)) as scratch, scratch.open("wb") as file:
            np.savez_compressed(file, header=np.array(json.dumps(header)), **arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read an estimator that :meth:`save` wrote.

        Raises
        ------
        OutputError, DataError
            When the file is absent, or not a model of this kind.
        """
        try:
            with np.load(path, allow_pickle=False) as stored:
                header = json.loads(str(stored["header"][()]))
                model = cls._asked(header)
                arrays = {name: stored[name] for name in cls._ARRAYS}
            check_model_arrays(arrays, header["features"], header["names"])
            for name, array in arrays.items():
                setattr(model, name, array)
            for name, number in header["numbers"].items():
                setattr(model, name, number)
            model.plan_ = cls._read_plan(header["plan"])
            model.certificate_ = Certificate.model_validate(header["certificate"])
            model._settle()
        except FileNotFoundError:
            raise _absent(path) from None
        except NOT_A_MODEL as error:
            raise _not_a_model(path, error) from None
        model.n_features_in_ = header["features"]
        if header["names"] is not None:
            model.feature_names_in_ = np.array(header["names"], dtype=object)
        return model

    @classmethod
    def _read_plan(cls, plan: Mapping[str, Any]) -> BasePlan:
        return cls._PLAN.model_validate(plan)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # an estimator of which nothing is fitted, such as a loaded result, takes no rows to fit
        tags.input_tags.allow_nan = getattr(self, "invalid", "error") == "zero"
        return tags

    def _check_fitted(self) -> None:
        """Raise where nothing was fitted or loaded yet.

        scikit-learn's own check asks for a ``fit`` method, which a loaded result need not have.
        """
        if not hasattr(self, self._ARRAYS[0]):
            raise NotFittedError(
                f"This {type(self).__name__} is not fitted yet: call fit, or load a saved model."
            )

    def _settle(self) -> None:
        """Set what follows from the plan and the certificate."""
        self.n_components_ = self.plan_.n_components
        self.guarantee_ = self.certificate_.guarantee()

    @classmethod
    def _asked(cls, header: Mapping[str, Any]) -> Self:
        """An estimator with the stored parameters; one without them where nothing is asked."""
        if header["format"] != _MODEL_FORMAT:
            raise KeyError(header["format"])
        estimator = header.get("estimator", _FIRST_ESTIMATOR)
        if "_FAMILY" in vars(cls) and estimator in cls._FAMILY:
            return cls()
        if estimator != cls.__name__:
            raise KeyError(f"it was fitted by {estimator}")
        model = cls(**header["parameters"])
        if isinstance(getattr(model, "center", None), list):
            model.center = np.array(model.center)
        return model


def estimator_of(path: str | os.PathLike[str]) -> str:
    """Name of the estimator that a model file holds.

    Raises
    ------
    OutputError, DataError
        When the file is absent, or no model.
    """
    try:
        with np.load(path, allow_pickle=False) as stored:
            header = json.loads(str(stored["header"][()]))
        return str(header.get("estimator", _FIRST_ESTIMATOR))
    except FileNotFoundError:
        raise _absent(path) from None
    except NOT_A_MODEL as error:
        raise _not_a_model(path, error) from None


def _absent(path: str | os.PathLike[str]) -> OutputError:
    return OutputError(
        f"{path} does not exist.", hint="Give the result folder that 'eigenveil fit' wrote."
    )


def _not_a_model(path: str | os.PathLike[str], error: Exception) -> DataError:
    return DataError(
        f"{path} is not a saved eigenveil model of this kind ({printable(error, most=200)}).",
        hint="Give a file that the same estimator's save wrote.",
    )


def public_centre(center: object, features: int) -> NDArray[np.float64] | None:
    """A public centre, checked; ``None`` where ``center`` is True or False.

    Raises
    ------
    DataError
        When it is not one finite number a feature.
    """
    if isinstance(center, bool | np.bool_):
        return None
    try:
        centre: NDArray[np.float64] = np.asarray(center, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        centre = np.full((), np.nan)
    if centre.shape != (features,) or not np.all(np.abs(centre) <= LARGEST):
        raise DataError(
            f"center has shape {centre.shape} or entries that are not numbers up to {LARGEST:g}; "
            f"the rows have {features} features.",
            hint="Give True, False, or one finite number a feature.",
            code="bad-centre",
        )
    return centre


def noise_source(random_state: object) -> RandomSource:
    """Operating-system entropy, or the seeded stand-in that marks the result."""
    if random_state is None:
        return SecureSource()
    if isinstance(random_state, np.random.RandomState):
        return SeededSource(int(random_state.randint(2**31)))
    if not isinstance(random_state, np.random.Generator):
        check_whole("random_state", random_state, least=0, most=2**128 - 1)
    return SeededSource(random_state)  # type: ignore[arg-type]


def _plain(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as JSON values; a random state is not kept."""
    plain: dict[str, Any] = {}
    for name, value in parameters.items():
        if name == "random_state":
            plain[name] = None
        elif name == "center" and not isinstance(value, bool):
            plain[name] = np.asarray(value, dtype=float).tolist()
        else:
            plain[name] = value
    return plain
