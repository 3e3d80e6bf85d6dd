"""Which studies cannot be run, in words, with the way out."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from eigenveil.errors import DataError, PrivacyError
from eigenveil.federation.graph import even
from eigenveil.headers import check_names, check_width
from eigenveil.models.options import study_options, tasks_with
from eigenveil.models.task import TASKS
from eigenveil.privacy.mechanisms import MECHANISMS

if TYPE_CHECKING:
    from eigenveil.federation.study import Study


def has_field(task: str, field: str) -> bool:
    """Whether a field of a study means anything for a task."""
    return field in study_options(task) or not tasks_with(field, "sites")


def check_study(study: Study) -> None:
    """Refuse what cannot be promised or run.

    Raises
    ------
    DataError, PrivacyError
        Naming the field, the site or the number.
    """
    for check in (
        _check_shape,
        _check_sites,
        _check_crowd,
        _check_protocol,
        _check_masks,
    ):
        check(study)


def _check_shape(study: Study) -> None:
    """Columns, and what must fit them."""
    if (study.columns is None) == (study.features is None):
        both = "both are given" if study.columns is not None else "neither is given"
        raise DataError(
            f"columns and features: {both}.",
            hint="Give columns (names), or features (their number) where files have no names.",
            code="columns-or-features",
        )
    _check_once("columns", study.columns or ())
    check_names("The study's columns", study.columns, of_words=TASKS[study.task].takes_documents)
    check_width("The study", study.width, sparse=True)
    least = 1 if study.components == "auto" else study.components
    if least > study.width:
        raise DataError(
            f"components = {study.components} is more than the study's {study.width} columns.",
            hint="Ask for fewer components, or check the columns.",
            code="too-many-components",
        )
    if isinstance(study.center, tuple) and len(study.center) != study.width:
        raise DataError(
            f"center has {len(study.center)} numbers and the study {study.width} columns.",
            hint="Give one number a column, in the same order, or true or false.",
            code="bad-centre",
        )
    if study.expected_rows is not None and study.expected_rows < least:
        raise DataError(
            f"expected_rows = {study.expected_rows} is less than components = {study.components}.",
            hint="Ask for fewer components, or leave expected_rows out.",
            code="fewer-rows-than-components",
        )


def _check_sites(study: Study) -> None:
    """Names and wishes."""
    _check_once("sites", [site.name for site in study.sites])
    for site in study.sites:
        if site.epsilon is None:
            continue
        own = replace(study_options(study.task)["epsilon"], name=f"site {site.name!r}: epsilon")
        own.check(site.epsilon)
        if site.epsilon > study.epsilon:
            raise PrivacyError(
                f"site {site.name!r}: epsilon = {site.epsilon:g} is more than the study's "
                f"{study.epsilon:g}.",
                hint="A site can wish for less than the study only; raise the study's epsilon and "
                "give the other sites theirs.",
                code="wish-above-study",
            )


def _check_crowd(study: Study) -> None:
    """Enough honest sites."""
    count, missing = len(study.sites), 1 - study.honest
    if missing > 0:
        raise PrivacyError(
            f"{count} sites less collusion = {study.collusion} and dropouts = {study.dropouts} "
            f"leave {study.honest} honest ones: {missing} too few to draw the noise.",
            hint=f"Lower collusion or dropouts by {missing} in all, or add {missing} "
            f"site{'s' if missing > 1 else ''}.",
            code="no-honest-site",
        )


def _check_protocol(study: Study) -> None:
    """Pure epsilon only as it is proved."""
    pure = "delta = 0" if study.delta == 0 else "mechanism = 'vector'"
    if study.delta == 0 and study.likely_protocol not in ("auto", "cape", "local"):
        raise PrivacyError(
            f"protocol = {study.likely_protocol!r} cannot give delta = 0.",
            hint="Use protocol = 'cape' (or 'local') for pure epsilon, or a delta above 0.",
            code="pure-needs-pure-mechanism",
        )
    noise = MECHANISMS.get(study.mechanism)
    if study.masks != "modular" and (study.delta == 0 or (noise is not None and noise.pure)):
        way = "a delta above 0" if study.delta == 0 else "mechanism = 'gaussian'"
        raise PrivacyError(
            f"masks = {study.masks!r} cannot give {pure}: Gaussian masks show a little.",
            hint=f"Use masks = 'modular', or {way}.",
            code="pure-needs-modular-masks",
        )


def _check_masks(study: Study) -> None:
    """Masks that hide every honest site among all others, and can be mended."""
    if study.dropouts and study.masks != "modular":
        raise PrivacyError(
            f"dropouts = {study.dropouts}: masks = {study.masks!r} of a lost site cannot be taken "
            "off.",
            hint="Use masks = 'modular', or dropouts = 0.",
            code="dropouts-need-modular-masks",
        )
    others, gone = len(study.sites) - 1, study.collusion + study.dropouts
    if study.masks != "helper" and study.degree < min(others, gone + 1):
        raise PrivacyError(
            f"neighbours = {study.neighbours}: without {gone} colluding or lost sites the others "
            "could fall into groups that do not hide one another.",
            hint=f"Give neighbours = {min(others, even(gone + 1))} or more, or leave it out.",
            code="too-few-neighbours",
        )
    if study.dropouts:
        _check_mending(study)


def _check_mending(study: Study) -> None:
    """Secrets of lost sites must be given back by those that remain.

    Then those that remain are also enough to sign who took part (``Study.signatures``): of all
    sites instead of a few no larger a share is needed.
    """
    holders, remain = study.degree + 1, study.degree + 1 - study.dropouts
    if remain >= study.threshold:
        return
    most = (holders - study.collusion - 1) // 2
    ways = [f"dropouts = {most} or fewer"]
    wanted = study.collusion + 2 * study.dropouts
    if wanted <= len(study.sites) - 1:
        ways.append(f"neighbours = {even(wanted)} or more")
    else:
        ways.append(f"at least {wanted + 1} sites")
    raise PrivacyError(
        f"dropouts = {study.dropouts}: a site's secrets are shared among {holders} sites and "
        f"{study.threshold} must give them back (collusion = {study.collusion}), but only {remain} "
        "may remain.",
        hint=f"With this collusion, {' or '.join(ways)} would work.",
        code="too-many-dropouts",
    )


def _check_once(field: str, names: Any) -> None:
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise DataError(
            f"{field}: {twice!r} is there twice.", hint="Name each once.", code="duplicate-name"
        )
