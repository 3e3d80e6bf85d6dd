"""Errors of parameters: the package's own, with code and hint, and scikit-learn's own kind too."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Mapping
from typing import Any, ClassVar

from sklearn.utils._param_validation import Interval, InvalidParameterError

from eigenveil.errors import DataError, PrivacyError
from eigenveil.models.domains import Domain, Option, Path
from eigenveil.models.options import Options, options_of


class InvalidParameter(DataError, InvalidParameterError):  # type: ignore[misc]
    """A parameter is not what it may be; nothing was charged or released."""


class InvalidPrivacyParameter(PrivacyError, InvalidParameterError):  # type: ignore[misc]
    """The same of a parameter of the guarantee."""


class UnknownArgument(DataError, TypeError):
    """A method has no such argument; a TypeError too, as Python has it."""


# -- Scikit-learn's constraints of an estimator's parameters, derived from the declaration.


class Declared(Interval):  # type: ignore[misc]
    """A declared domain as one of scikit-learn's constraints.

    Of their classes only those in a closed list are taken for constraints, so that this is one;
    what is allowed, and the message, come from the declaration alone.
    """

    def __init__(self, domain: Domain) -> None:
        self.domain, self.hidden = domain, False

    def is_satisfied_by(self, val: object) -> bool:
        return self.domain.has(val)

    def __str__(self) -> str:
        return self.domain.text


class Configured:
    """An estimator whose parameters are declared; stands before a fitted model's class.

    Its options are those of ``_TASK`` whose rows come by ``_PATH``. Each of its ``fit`` methods
    begins with :meth:`_options`: nothing is charged or released of parameters that cannot be.
    Scikit-learn's setting ``skip_parameter_validation`` does not skip it, since a guarantee rests
    on these values.
    """

    _TASK: ClassVar[str]
    _PATH: ClassVar[Path]
    _parameter_constraints: ClassVar[dict[str, list[Any]]]

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if hasattr(cls, "_TASK") and hasattr(cls, "_PATH"):
            options = options_of(cls._TASK, cls._PATH)
            cls._parameter_constraints = {
                name: [Declared(domain) for domain in option.values]
                for name, option in options.items()
            }
            if cls.__doc__:
                order = inspect.signature(cls).parameters
                cls.__doc__ = _documented(cls.__doc__, [options[name] for name in order])

    def _options(self) -> Options:
        estimator: Any = self
        return Options(
            self._TASK, self._PATH, estimator.get_params(deep=False), owner=type(self).__name__
        )

    def _refuse_others(self, given: Mapping[str, object]) -> None:
        """Refuse what a ``fit`` does not take, such as ``sample_weight``, in words.

        None is a parameter by its name, so that scikit-learn's ``has_fit_parameter`` says no.
        """
        own = type(self).__name__
        if "sample_weight" in given:
            raise UnknownArgument("sample-weight", estimator=own)
        for name in given:
            raise UnknownArgument("unknown-argument", estimator=own, name=name)

    def _take(self, given: Mapping[str, Any]) -> None:
        """Keep what a constructor was given, as it was given: an attribute for each option."""
        for name in options_of(self._TASK, self._PATH):
            setattr(self, name, given[name])

    def _validate_params(self) -> None:
        """Scikit-learn's name for the same."""
        self._options()


# Where a class's docstring has its parameters, which are documented where they are declared.
_PLACE = re.compile(r"^( *)\{options\}$", re.MULTILINE)


def _documented(text: str, options: list[Option]) -> str:
    paragraphs = "\n".join(option.documented for option in options)
    return _PLACE.sub(lambda place: textwrap.indent(paragraphs, place[1]), text)
