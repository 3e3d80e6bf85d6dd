"""A fitted result: one frozen thing, bound to the certificate of the releases that made it.

Estimators keep no released value of their own: their attributes are views of a result
(:class:`View`). The certificate holds a digest of the released model, so that neither can be
changed, saved or shown with another's.
"""

from __future__ import annotations

import hashlib
import json
import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache, cached_property
from importlib.metadata import version
from typing import Any, Generic, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from eigenveil.errors import PrivacyError
from eigenveil.models.options import options_of
from eigenveil.models.plan import BasePlan
from eigenveil.moments.compiled import in_use
from eigenveil.privacy.certificate import Certificate, RequestedGuarantee, make_certificate
from eigenveil.privacy.guarantee import Guarantee
from eigenveil.privacy.releases import ReleaseRecord
from eigenveil.tables.schema import Schema

T = TypeVar("T")
F = TypeVar("F")
_DIGEST = "eigenveil-model-digest-1"


@dataclass(frozen=True)
class EstimatorSpec:
    """Who fits, and with which constructor parameters, as plain JSON values.

    Taken before the fit begins: what is set later does not change what was requested.
    """

    estimator: str
    parameters: Mapping[str, Any]

    @classmethod
    def by(cls, model: Any, **instead: Any) -> EstimatorSpec:
        """By an estimator, with some parameters ``instead`` of its own; none that is local."""
        given = model.get_params(deep=False) | instead
        local = {one.name for one in options_of(model._TASK, model._PATH).values() if one.local}
        kept = {name: None if name in local else v for name, v in given.items()}
        return cls(type(model).__name__, json.loads(json.dumps(_plain(kept))))


@dataclass(frozen=True, eq=False)
class Result:
    """What a fit released, and its certificate."""

    spec: EstimatorSpec
    plan: BasePlan
    factors: Any  # Of the task; arrays cannot be written
    features: int
    names: tuple[str, ...] | None  # Of the features
    certificate: Certificate  # Its `model` is the digest of factors, features, names and schema
    # What else belongs to the fit and is not released: traffic, for example
    details: Mapping[str, Any] = field(default_factory=dict)
    loaded: bool = False  # Whether it was read from a file
    schema: Schema | None = None  # Of the table, by which its columns became the features
    whole: Any = None  # The fit's factors, where these are the first components of them
    guarantee: Guarantee = field(init=False)  # What the certificate gives
    _seal: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "factors", frozen(self.factors))
        object.__setattr__(self, "guarantee", self.certificate.guarantee())
        object.__setattr__(self, "_seal", self._reported())
        self.check()

    def check(self) -> None:
        if self.certificate.model != self._digest(self.released) or (
            self.whole is not None
            and self._digest(self.factors)
            != self._digest(self.whole.first(len(self.factors.components)))
        ):
            raise changed("The model is not the one that its certificate was made for.")
        if self.plan.hash != self.certificate.plan_hash:
            raise changed("The plan is not the one that the certificate was made for.")
        if _stopped(self.factors) != self.certificate.stopped:
            raise changed("Model and certificate do not end where one run did.")
        if self._seal != self._reported():
            raise changed("The certificate or the parameters were changed after the fit.")

    @property
    def released(self) -> Any:
        """The factors that the certificate was made for."""
        return self.factors if self.whole is None else self.whole

    def _digest(self, factors: Any) -> str:
        return model_digest(factors, features=self.features, names=self.names, schema=self.schema)

    def _reported(self) -> str:
        text = self.certificate.model_dump_json() + json.dumps(self.spec.parameters)
        return hashlib.sha256(text.encode()).hexdigest()

    @cached_property
    def views(self) -> dict[str, Guarantee]:
        return self.certificate.guarantees()

    @property
    def row_bound(self) -> float:
        """The norm at which rows were shortened, less what levels of categories have apart."""
        return float(self.factors.row_bound * math.sqrt(self.plan.kept))

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the features; their places where they have none."""
        return tuple(map(str, range(self.features))) if self.names is None else self.names

    @cached_property
    def later(self) -> dict[Any, Any]:
        """What was computed of it on request, and is kept."""
        return {}

    def __deepcopy__(self, memo: object) -> Result:
        return self  # nothing in it can be changed

    def __reduce__(self) -> Any:  # arrays come out of a pickle frozen, too
        kept = (self.spec, self.plan, self.factors, self.features, self.names, self.certificate)
        return Result, (*kept, self.details, self.loaded, self.schema, self.whole)


class View(Generic[T]):
    """A read-only attribute of a fitted estimator; it is there once there is a result."""

    def __init__(self, read: Callable[[Result], T]) -> None:
        self._read = read

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, model: Any, owner: type | None = None) -> T:
        if model is None:
            return self  # type: ignore[return-value]
        result: Result | None = model._result
        if result is not None:
            try:
                return self._read(result)
            except (AttributeError, KeyError):
                pass
        raise AttributeError(
            f"{type(model).__name__!r} object has no attribute {self._name!r}"
            + ("" if result is not None else f": it {model._unfitted}")
        )

    def __set__(self, model: Any, value: object) -> NoReturn:
        raise AttributeError(
            f"{self._name} of {type(model).__name__} cannot be set: it belongs to a released "
            "result and its certificate."
        )

    def __delete__(self, model: Any) -> NoReturn:
        self.__set__(model, None)


def of_factors(name: str) -> View[Any]:
    return View(lambda result: getattr(result.factors, name))


def frozen(factors: F) -> F:
    """Factors whose arrays stand on bytes that cannot be written, and whose numbers are plain."""
    assert is_dataclass(factors)
    kept = {}
    for name, value in parts_of(factors).items():
        if isinstance(value, np.ndarray):
            value = read_only(value)
        elif isinstance(value, np.generic):
            value = value.item()
        kept[name] = value
    return made_of(type(factors), kept)


# Of the parts of factors, those that are released sums.
_RELEASED = "released: "


def parts_of(factors: Any) -> dict[str, Any]:
    """All that is in factors, by name; each released sum is a part of its own."""
    found = {each.name: getattr(factors, each.name) for each in fields(factors)}
    released = found.pop("released")
    return found | {f"{_RELEASED}{name}": values for name, values in released.items()}


def released_sum(part: str) -> str:
    """The name of the release that a part of factors is; empty of any other part."""
    return part.removeprefix(_RELEASED) if part.startswith(_RELEASED) else ""


def made_of(kind: Callable[..., F], parts: Mapping[str, Any]) -> F:
    released = {
        name.removeprefix(_RELEASED): values
        for name, values in parts.items()
        if name.startswith(_RELEASED)
    }
    others = {name: value for name, value in parts.items() if not name.startswith(_RELEASED)}
    return kind(**others, released=released)


def model_digest(
    factors: Any, *, features: int, names: Sequence[str] | None, schema: Schema | None = None
) -> str:
    """SHA-256 of everything in a model, as hexadecimal digits.

    It covers the names, types, shapes and bytes of the arrays of the factors, their other values
    (floats to the last bit), the number of features, their names, and the schema if there is one.
    """
    values: dict[str, Any] = {}
    arrays: list[NDArray[Any]] = []
    for name, value in sorted(parts_of(factors).items()):
        if isinstance(value, np.ndarray):
            values[name] = ["array", value.dtype.newbyteorder("<").str, list(value.shape)]
            arrays.append(value)
        else:
            values[name] = _to_the_bit(_plain(value))
    head = {
        "format": _DIGEST,
        "factors": values,
        "features": features,
        "names": None if names is None else [str(name) for name in names],
    }
    head |= {} if schema is None else {"schema": schema.hash}
    digest = hashlib.sha256()
    _take(digest, json.dumps(head, sort_keys=True).encode())
    for array in arrays:
        _take(digest, array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes())
    return digest.hexdigest()


@cache
def _software() -> str:
    """The package's name and version, whose files are read once, and the loops that it uses."""
    return f"eigenveil {version('eigenveil')} ({in_use()} loops)"


def certificate_of(
    plan: BasePlan,
    factors: Any,
    releases: Sequence[ReleaseRecord],
    *,
    names: Sequence[str] | None,
    dependent: bool,
    schema: Schema | None = None,
    view: str = "outsider",
    **of_run: Any,
) -> Certificate:
    """The certificate of a run that made these factors of its releases, without signatures."""
    return make_certificate(
        software=_software(),
        plan=plan.model_dump(mode="json"),
        model=model_digest(factors, features=plan.features, names=names, schema=schema),
        target=claim_of(plan, view=view),
        releases=releases,
        stopped=_stopped(factors),
        dependent=dependent,
        **of_run,
    )


def _stopped(factors: Any) -> str | None:
    """Why a fit ended before its last release, by what it made; ``None`` where it did not."""
    return getattr(factors, "stopped", None) or None


def claim_of(plan: BasePlan, *, view: str) -> RequestedGuarantee:
    """What a run of a plan promises."""
    return RequestedGuarantee(
        epsilon=plan.epsilon,
        delta=plan.delta,
        adjacency=plan.adjacency,
        unit=plan.unit,
        view=view,
    )


def changed(what: str) -> PrivacyError:
    return PrivacyError("model-changed", what=what)


def _take(digest: Any, part: bytes) -> None:
    digest.update(len(part).to_bytes(8, "little"))
    digest.update(part)


def reciprocal(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """One over each, as of scales; 0 where there is none."""
    return np.divide(1.0, values, out=np.zeros_like(values), where=values > 0)


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """A copy that nobody can write to, nor make writable."""
    if array.size == 0:
        empty = array.copy()
        empty.flags.writeable = False
        return empty
    return np.frombuffer(array.tobytes(), dtype=array.dtype).reshape(array.shape)


def _to_the_bit(value: Any) -> Any:
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, list | tuple):
        return [_to_the_bit(each) for each in value]
    if isinstance(value, Mapping):
        return {name: _to_the_bit(each) for name, each in value.items()}
    return value


def _plain(value: Any) -> Any:
    """A value as JSON has it, as far as that is possible."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, str):
        return str(value)
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    return repr(value)


# -- What a model's file holds.

# Their lengths are not that of the components; the last may be NaN.
_OF_FEATURES = ("mean", "mean_error", "scale")
_OF_COVARIATES, _OF_SHAPES, _OF_SITES = "covariate_effects", "covariances", "site_means"
_OF_ANY_LENGTH = ("strengths", "criteria", "score_range")
_MAY_BE_NAN = ("explained_variance", "explained_variance_ratio")


def check_model_arrays(arrays: Mapping[str, NDArray[Any]], features: object, names: object) -> None:
    """Raise where a model's arrays do not belong together."""
    first = next(iter(arrays), "")
    if not first:
        raise ValueError("it has no arrays")
    if arrays[first].ndim != 2:
        raise ValueError(f"{first} has {arrays[first].ndim} dimensions")
    count, width = arrays[first].shape
    if type(features) is not int or width != features:
        raise ValueError(f"{first} has {width} columns")
    if names is not None and not (isinstance(names, list) and len(names) == width):
        raise ValueError(f"{first} has {width} columns, and as many names there are not")
    for name, array in arrays.items():
        if released_sum(name):  # its size is compared with its record's
            if array.dtype != np.float64 or not np.isfinite(array).all():
                raise ValueError(f"{name} is {array.dtype}, or has entries that are not finite")
            continue
        size: tuple[int, ...] = (width if name in _OF_FEATURES else count,)
        if name == first:
            size = (count, width)
        if name in _OF_ANY_LENGTH:
            size = (array.size,)
        if name == _OF_SITES:
            size = (len(array), width)
        if name == _OF_COVARIATES:
            size = (width, *array.shape[1:2])
        if name == _OF_SHAPES and array.ndim > 1:  # of "diag", "tied" and "full"
            shapes = ((count, width), (width, width), (count, width, width))
            size = next((each for each in shapes if each == array.shape), size)
        if array.shape != size or array.dtype.kind not in "biuf":
            raise ValueError(f"{name} is {array.dtype} of shape {array.shape}")
        if name not in _MAY_BE_NAN and not np.isfinite(array).all():
            raise ValueError(f"{name} has entries that are not finite")
