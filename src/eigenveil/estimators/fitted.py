"""What every fitted PCA can do, whoever held the rows: transform, save, load."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from eigenveil.errors import DataError, OutputError
from eigenveil.estimators.pipeline import Factors
from eigenveil.estimators.settings import Plan
from eigenveil.files import replacing
from eigenveil.noise.source import RandomSource, SecureSource, SeededSource
from eigenveil.privacy.certificate import Certificate

_MODEL_FORMAT = "eigenveil-model-1"
_ARRAYS = (
    "components_",
    "mean_",
    "explained_variance_",
    "explained_variance_ratio_",
    "usable_",
)
_NUMBERS = ("n_samples_", "noise_floor_", "total_variance_", "row_bound_")


class FittedPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Released components and what belongs to them.

    ``FittedPCA.load`` reads a model that any of the estimators saved; ``PrivatePCA.load`` and
    ``FederatedPCA.load`` also give back how it was asked for.
    """

    def _keep(self, plan: Plan, factors: Factors, certificate: Certificate) -> None:
        self.plan_ = plan
        self.components_ = factors.components
        self.mean_ = factors.mean
        self.explained_variance_ = factors.explained_variance
        self.explained_variance_ratio_ = factors.explained_variance_ratio
        self.total_variance_ = factors.total_variance
        self.noise_floor_ = factors.noise_floor
        self.usable_ = factors.usable
        self.n_samples_ = factors.rows
        self.row_bound_ = factors.row_bound
        self.n_components_ = plan.n_components
        self.certificate_ = certificate
        self.guarantee_ = self.certificate_.guarantee()

    def transform(self, X: ArrayLike) -> NDArray[np.floating[Any]]:
        """Scores of the rows of ``X`` along the components, shape (n_samples, n_components)."""
        check_is_fitted(self)
        array = validate_data(
            self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False
        )
        components = self.components_.astype(array.dtype, copy=False)
        offset = (self.mean_ @ self.components_.T).astype(array.dtype, copy=False)
        return np.asarray(array @ components.T - offset)

    def inverse_transform(self, X: ArrayLike) -> NDArray[np.floating[Any]]:
        """Rows in the original space of scores ``X``, shape (n_samples, n_features)."""
        check_is_fitted(self)
        scores = np.asarray(X)
        if scores.ndim != 2 or scores.shape[1] != self.components_.shape[0]:
            raise DataError(
                f"Scores of shape {scores.shape} do not have {self.components_.shape[0]} columns.",
                hint="Give what transform returned.",
            )
        return np.asarray(scores @ self.components_ + self.mean_)

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[0])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted estimator to one file (numpy's format with JSON inside, no pickle)."""
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None)
        header = {
            "format": _MODEL_FORMAT,
            "estimator": type(self).__name__,
            "parameters": _plain(self.get_params()),
            "features": self.n_features_in_,
            "names": None if names is None else [str(name) for name in names],
            "numbers": {name: float(getattr(self, name)) for name in _NUMBERS},
            "plan": self.plan_.model_dump(mode="json"),
            "certificate": self.certificate_.model_dump(mode="json"),
        }
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        with replacing(Path(path)) as scratch, scratch.open("wb") as file:
            np.savez_compressed(file, header=np.array(json.dumps(header)), **arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read an estimator that :meth:`save` wrote."""
        try:
            with np.load(path, allow_pickle=False) as stored:
                header = json.loads(str(stored["header"][()]))
                arrays = {name: stored[name] for name in _ARRAYS}
            if header["format"] != _MODEL_FORMAT:
                raise KeyError(header["format"])
            model = cls._asked(header)
            for name, array in arrays.items():
                setattr(model, name, array)
            for name, number in header["numbers"].items():
                setattr(model, name, number)
            model.plan_ = Plan.model_validate(header["plan"])
            model.certificate_ = Certificate.model_validate(header["certificate"])
        except FileNotFoundError:
            raise OutputError(
                f"{path} does not exist.", hint="Give the result folder that 'eigenveil fit' wrote."
            ) from None
        except (KeyError, ValueError, OSError) as error:
            raise DataError(
                f"{path} is not a saved eigenveil model ({error}).",
                hint="Give a file that PrivatePCA.save wrote.",
            ) from None
        model.n_features_in_ = header["features"]
        if header["names"] is not None:
            model.feature_names_in_ = np.array(header["names"], dtype=object)
        model.n_components_ = model.plan_.n_components
        model.guarantee_ = model.certificate_.guarantee()
        return model

    @classmethod
    def _asked(cls, header: Mapping[str, Any]) -> Self:
        """An estimator with the stored parameters; one without them where nothing is asked."""
        if cls is FittedPCA:
            return cls()
        if header.get("estimator", "PrivatePCA") != cls.__name__:
            raise KeyError(f"it was fitted by {header['estimator']}")
        model = cls(**header["parameters"])
        if isinstance(getattr(model, "center", None), list):
            model.center = np.array(model.center)
        return model

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        tags.input_tags.sparse = True
        tags.non_deterministic = getattr(self, "random_state", None) is None
        return tags


def public_centre(center: object, features: int) -> NDArray[np.float64] | None:
    """A public centre, checked; ``None`` where ``center`` is True or False.

    Raises
    ------
    DataError
        When it is not one finite number a feature.
    """
    if isinstance(center, bool | np.bool_):
        return None
    centre = np.asarray(center, dtype=np.float64)
    if centre.shape != (features,) or not np.isfinite(centre).all():
        raise DataError(
            f"center has shape {centre.shape} or entries that are not finite; the rows have "
            f"{features} features.",
            hint="Give True, False, or one finite number a feature.",
        )
    return centre


def noise_source(random_state: object) -> RandomSource:
    """Operating-system entropy, or the seeded stand-in that marks the result."""
    if random_state is None:
        return SecureSource()
    if isinstance(random_state, np.random.RandomState):
        return SeededSource(int(random_state.randint(2**31)))
    assert isinstance(random_state, int | np.integer | np.random.Generator)
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
