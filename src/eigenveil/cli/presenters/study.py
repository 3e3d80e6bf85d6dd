"""Showing a study to people and programs: its meaning, its promises, its forecasts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from eigenveil.app.forecasts import OF_FITS, Outlook, needs_parts, needs_values
from eigenveil.app.parts import Part, TextTable, bytes_text
from eigenveil.cli.presenters.screen import Screen
from eigenveil.errors import short_name
from eigenveil.federation.protocol.terms import settle
from eigenveil.federation.study.study import WEIGHT_BITS, Study
from eigenveil.models.plan import Step
from eigenveil.models.task import TASKS
from eigenveil.models.tensors.plan import TensorPlan
from eigenveil.planning.forecast import POOLED, Forecast, forecast, noise_factors
from eigenveil.planning.predict import parse_spectrum
from eigenveil.planning.protocol import Choice
from eigenveil.planning.tensors import Expected, Parties, expect
from eigenveil.privacy.accountant import epsilon_of_mu, mu_of_epsilon
from eigenveil.privacy.guarantee import neighbours_text
from eigenveil.tables.schema import Schema

# So few sites that each one's own noise is much of the whole.
_FEW = 3
# Protocols whose sites each draw the whole noise.
_ALONE = ("local", "dpdispca", "full")


@dataclass(frozen=True)
class Adversary:
    """Who might want to know of a row, and how many honest sites' noise protects it.

    ``honest`` counts shares of noise that the adversary certainly does not know; the study's
    guarantee rests on ``needed`` of them. Fewer: no guarantee is given.
    """

    name: str
    honest: int
    needed: int

    @property
    def protected(self) -> bool:
        """Whether the study's guarantee holds against it."""
        return self.honest >= self.needed


def adversaries(study: Study) -> tuple[Adversary, ...]:
    """Everyone that a study's guarantee is, or might be thought to be, about."""
    if study.protocol == "local" or len(study.sites) == 1:
        return (Adversary("anyone who sees the result", 1, 1), Adversary("the aggregator", 1, 1))
    least, honest = study.fewest_sites, study.honest
    found = [
        Adversary("anyone who sees the result", least, honest),
        # which sees the result and knows its own share of the noise
        Adversary("another site of the study", max(1, least - 1), honest),
        Adversary("the aggregator", least, honest),
    ]
    if study.collusion:
        some = f"the aggregator together with up to {_count(study.collusion, 'other site')}"
        found.append(Adversary(some, honest, honest))
    if study.masks == "helper":
        found.append(Adversary("the helper, with the result", least, honest))
        found.append(Adversary("the helper together with the aggregator", 1, honest))
    if honest > 1:
        more = study.collusion + 1
        found.append(
            Adversary(
                f"the aggregator together with {more} or more sites",
                max(1, len(study.sites) - study.dropouts - more),
                honest,
            )
        )
    return tuple(found)


def summary(study: Study, choice: Choice | None) -> dict[str, Any]:
    """The study's fields, as plain values."""
    weights = study.weights()
    return {
        "name": study.name,
        "hash": study.hash,
        "requested_by": study.requested_by,
        "purpose": study.purpose,
        "task": study.task,
        "columns": None if study.columns is None else list(study.columns),
        "features": study.width,
        "table_schema": None if study.table_schema is None else study.table_schema.as_dict(),
        "components": study.components,
        "epsilon": study.epsilon,
        "delta": study.delta,
        "adjacency": study.adjacency,
        "unit": study.unit,
        "max_rows_per_unit": study.max_rows_per_unit,
        "sites_per_unit": study.sites_per_unit,
        "protocol": study.protocol if choice is None else choice.protocol,
        "reason": None if choice is None else choice.reason,
        "masks": study.masks,
        "sites": [
            {
                "name": site.name,
                "epsilon": study.epsilon if site.epsilon is None else site.epsilon,
                "weight": weights[site.name] / (1 << WEIGHT_BITS),
            }
            for site in study.sites
        ],
        "collusion": study.collusion,
        "dropouts": study.dropouts,
        "honest_sites": study.honest,
        "fewest_sites": study.fewest_sites,
        "neighbours": study.degree,
        "threshold": study.threshold,
        "noise": _noise(study if choice is None else study.with_protocol(choice.protocol)),
        "adversaries": adversaries_json(study),
        "notes": list(study.notes),
    }


def adversaries_json(study: Study) -> list[dict[str, Any]]:
    """The adversaries as plain values."""
    return [{**asdict(each), "protected": each.protected} for each in adversaries(study)]


def _noise(study: Study, step: Step = "moment") -> str:
    """What each site draws for a step, in a sentence."""
    made = study.plan(study.width)
    budget = made.budgets[step]
    if budget.mu is None:
        assert budget.epsilon is not None
        noise_parts = 1 if study.protocol == "local" else study.honest
        noise = made.noises[step]
        return noise.part(study.sites_per_unit / budget.epsilon, made.features, noise_parts)
    whole = study.sites_per_unit / budget.mu
    total = f"deviation {whole:.4g} of a row's largest contribution"
    if study.protocol in _ALONE or study.honest == 1:
        return f"all of it: {total}"
    share = whole / math.sqrt(study.honest)
    return f"deviation {share:.4g} of a row's largest contribution; {study.honest} make {whole:.4g}"


def no_outlook(study: Study, rows: int | None, words: int, spectrum: str) -> None:
    """Nothing beside the protocols' forecasts; the spectrum is refused once, not for each."""
    del rows, words
    parse_spectrum(spectrum, study.width)


def _has_tensor(study: Study) -> bool:
    """Whether a third moment is released too."""
    return "tensor" in study.plan(study.width).fractions


def _what_is_sent(study: Study) -> str:
    """What a settled study's sites send."""
    moment = TASKS[study.task].moment
    triples = " and triple moments" if _has_tensor(study) else ""
    return {
        "cape": f"the sites send {moment}s{triples} under masks: only their sum is visible",
        "sketch": f"the sites send sketches{triples} under masks: only their sum is visible",
        "dpdispca": f"each site sends the leading directions of its own noisy {moment}",
        "full": f"each site sends its own noisy {moment}",
        "local": f"the first site sends its noisy {moment}{triples[:-1]}, the others nothing",
    }[study.protocol]


def print_summary(study: Study, choice: Choice | None, checked: dict[str, str]) -> None:
    """The study in sentences; ``checked`` has what was found in sites' files."""
    screen = Screen()
    values = summary(study, choice)
    screen.print(
        f"study {study.name}: {study.task}, {_components_text(study)} of {_columns_text(study)}"
    )
    if study.requested_by:
        screen.print(f"requested by {study.requested_by}.")
    if study.purpose:
        screen.print(f"purpose: {study.purpose}.")
    if study.table_schema is not None:
        screen.print(f"files are read by the study's schema: {_schema_text(study.table_schema)}.")
    _print_protected(study, screen)
    settled = study if choice is None else study.with_protocol(choice.protocol)
    sizes = forecast(settled, study.width, None)
    size = bytes_text(sizes.round_bytes if _has_tensor(settled) else sizes.message_bytes)
    screen.print(f"protocol {settled.protocol}: {_what_is_sent(settled)}, {size} a site.")
    if choice is not None:
        screen.print(f"  chosen: {choice.reason}")
    table = Table(title=_count(len(study.sites), "site"))
    table.add_column("site")
    table.add_column("epsilon", justify="right")
    table.add_column("weight", justify="right")
    if checked:
        table.add_column("file")
    for site in values["sites"]:
        file = [checked.get(site["name"], "not looked at")] if checked else []
        table.add_row(site["name"], f"{site['epsilon']:g}", f"{site['weight']:.4g}", *file)
    screen.print(table)
    screen.print(f"noise of the {TASKS[study.task].moment}, each site: {values['noise']}.")
    if _has_tensor(settled):
        screen.print(f"noise of the triple moment, each site: {_noise(settled, 'tensor')}.")
    if len(study.sites) > 1 and study.protocol != "local":
        screen.print(
            f"at least {study.fewest_sites} of {len(study.sites)} sites must take part to the end; "
            f"the noise of {study.honest} suffices."
        )
        screen.print(_masks_text(study))
    _print_adversaries(study)
    for note in study.notes:
        screen.print(f"  note: {note}")
    screen.print(f"hash {study.hash}: every site's must be the same.")


def _print_protected(study: Study, screen: Screen) -> None:
    """Whose rows are protected, and what is done to columns."""
    plan = study.plan(study.width)
    screen.print(f"protected: {neighbours_text(study.adjacency, plan.unit)}.", soft_wrap=True)
    if plan.unit is not None and plan.max_rows_per_unit > 1:
        screen.print(f"  rows of a unit count alike up to {plan.max_rows_per_unit:,} of them.")
    if len(study.sites) > 1:
        what = "row" if plan.unit is None else "unit"
        most = study.sites_per_unit
        screen.print(
            f"  each {what} is at one site only, which the sites' owners must see to."
            if most == 1
            else f"  a {what} may have rows at {most} sites: the noise is {most} times larger."
        )
    if plan.scaled == "private" and not plan.ranged:
        screen.print("columns are divided by scales that are found privately.")
    elif plan.scaled != "no" or plan.ranged:
        screen.print("columns are divided by public scales or ranges, which the study has.")
    if plan.holes:
        screen.print(f"entries may be missing ({plan.missing}).")


def _components_text(study: Study) -> str:
    if study.components is None:
        return TASKS[study.task].title
    most = f"(at most {study.most_components})"
    if isinstance(study.components, str):
        return f"as many components as stand above the noise {most}"
    if isinstance(study.components, float):
        return f"components for {study.components:.4g} of the variance {most}"
    return _count(study.components, "component")


def _columns_text(study: Study) -> str:
    if study.columns is None:
        return f"{_count(study.width, 'column')} without names"
    shown = ", ".join(short_name(name) for name in study.columns[:8]) + (
        ", ..." if study.width > 8 else ""
    )
    return f"{_count(study.width, 'column')} ({shown})"


def _schema_text(schema: Schema) -> str:
    """Which columns of a file are read, and as what, for whoever agrees to it."""
    found = [
        f"{short_name(column.name)} "
        f"({f'{len(column.levels)} levels' if column.kind == 'category' else column.kind})"
        for column in schema.read
    ]
    whose = "" if schema.unit is None else f"; rows belong to {short_name(schema.unit)}"
    more = f" and {len(found) - 20} more" if len(found) > 20 else ""
    return ", ".join(found[:20]) + more + whose


def _masks_text(study: Study) -> str:
    if study.masks == "helper":
        return "masks: from a trusted helper."
    text = f"masks: {study.masks}, each site with {_count(study.degree, 'other')}"
    if study.dropouts:
        text += (
            f"; of the {study.degree + 1} that hold a share of a site's secrets, "
            f"{study.threshold} are needed"
        )
    return text + "."


def _print_adversaries(study: Study) -> None:
    """What each is held to, the worst view first."""
    screen = Screen()
    for each in sorted(adversaries(study), key=lambda each: min(1.0, each.honest / each.needed)):
        screen.print(f"against {each.name}: {_promise(study, each)}.")
    few = 1 < len(study.sites) <= _FEW and study.protocol != "local"
    if few and not study.collusion and any(not each.protected for each in adversaries(study)):
        screen.print(
            f"  note: each of {len(study.sites)} sites draws a large part of the noise and knows "
            "its own; with collusion = 1 the promise holds against another site as well."
        )
    if any(site.epsilon is not None for site in study.sites):
        screen.print("  note: sites with a smaller epsilon are promised theirs.")


def _promise(study: Study, adversary: Adversary) -> str:
    rest = f"{_count(adversary.honest, 'honest site')}, {adversary.needed} needed"
    if not adversary.protected and study.delta == 0:
        return f"no promise (perhaps only the noise of {rest})"
    if not adversary.protected:
        requested = mu_of_epsilon(study.epsilon, study.delta)
        mu = requested * math.sqrt(adversary.needed / adversary.honest)
        weaker = epsilon_of_mu(mu, study.delta)
        return f"less than was requested, epsilon = {weaker:.3g} or more (the noise of {rest})"
    promise = f"({study.epsilon:g}, {study.delta:g})-differential privacy or better"
    return f"{promise} (the noise of {rest})"


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def forecast_json(found: Forecast) -> dict[str, Any]:
    """A forecast as plain values."""
    fields = asdict(found)
    del fields["trials"]
    fields["captured_energy_error"] = found.trials.quality_error
    fields["shows_nothing"] = found.trials.as_json()
    if found.memory_bytes == 0:  # a protocol that this study cannot have
        fields |= {"message_bytes": None, "round_bytes": None, "memory_bytes": None}
    return fields


def _size(count: int) -> str:
    return bytes_text(count) if count else "-"


def print_plan(
    study: Study,
    forecasts: Sequence[Forecast],
    chosen: str,
    choice: Choice | None,
    rows: int | None,
    spectrum: str,
    tensors: ExpectedStudy | Outlook | None = None,
    shown: str = "",
) -> None:
    """A table of what each protocol would give, the chosen one marked."""
    screen = Screen()
    amount = "rows not given" if rows is None else f"{rows:,} rows"
    if rows is not None and tensors is None:
        amount += f", {spectrum}"
    table = Table(
        title=f"{study.name}: {_count(len(study.sites), 'site')}, "
        f"{_count(study.width, 'column')}, {_components_text(study)}, {amount}"
    )
    table.add_column("protocol")
    if tensors is None:
        table.add_column("captured energy", justify="right")
        table.add_column("shows nothing", justify="right")
    table.add_column("bytes a site", justify="right")
    table.add_column("memory", justify="right")
    table.add_column("note")
    for each in forecasts:
        mark = " *" if each.protocol == chosen else ""
        energy = "-" if each.captured_energy is None else f"{each.captured_energy:.3f}"
        table.add_row(
            each.protocol + mark,
            *([energy, each.trials.text()] if tensors is None else []),
            _size(each.round_bytes),
            _size(each.memory_bytes),
            each.note if tensors is None else each.note.removesuffix(_ONLY_SIZES).rstrip("; "),
            style="bold" if mark else None,
        )
    screen.print(table)
    screen.print(f"* this study's{'.' if choice is None else ': ' + choice.reason}")
    if tensors is not None:
        screen.print("bytes: the numbers that leave a site, in all rounds together.")
        screen.show(tensors.parts())
        screen.print(shown)
    else:
        screen.print(
            "captured energy: of the exact subspace's, simulated on Gaussian rows with this "
            "spectrum, as many at every site. shows nothing: the probability that no component is "
            f"usable. {OF_FITS} {POOLED}: for comparison. bytes: the numbers that "
            "leave a site."
        )
        if rows is None:
            screen.print("note: give --rows to have the captured energy predicted.")
    _print_adversaries(study)


# The forecast of every protocol of mixtures and topics.
_ONLY_SIZES = "only the sizes are forecast for this task"


# -- What a study of mixtures or topics would send and release.


# Where the number of rows is unknown: what is sent does not depend on it.
_SOME_ROWS = 1_000_000


@dataclass(frozen=True)
class ExpectedStudy:
    """What a study would release of so many rows of full weight; ``None``: rows were not given.

    ``hidden`` is whether there are other sites to hide among.
    """

    found: Expected
    rows: int | None
    hidden: bool

    def as_json(self) -> dict[str, Any]:
        """Rounds, releases and what stands above their noise, as plain values."""
        values = needs_values(self.found, self.rows or _SOME_ROWS)
        if self.rows is None:
            values["needs"] = None
        values["round_bytes"] = [
            8 * sum(record.noise.size for record in together) for together in self.found.rounds
        ]
        return values

    def parts(self) -> Iterator[Part]:
        """Tables of what every site sends in each round, and of what is seen of the sum."""
        what = "every site sends, hidden among the others" if self.hidden else "one site sends"
        rows = [
            (
                str(number),
                record.name,
                f"{record.noise.size:,}",
                bytes_text(8 * record.noise.size),
                f"{record.noise.kind}, scale {record.noise.scale:.4g}",
            )
            for number, together in enumerate(self.found.rounds, start=1)
            for record in together
        ]
        headings = ("round", "a sum of", "values", "bytes", "noise of the total")
        yield TextTable(f"what {what}", headings, rows, right=("values", "bytes"))
        if self.rows is None:
            yield "note: give --rows to predict what components need to be seen."
        else:
            yield from needs_parts(self.found, self.rows)


def expect_study(
    study: Study, rows: int | None, document_words: int, spectrum: str = ""
) -> ExpectedStudy:
    """What a study with a protocol would release of so many rows of all sites together."""
    del spectrum
    terms = settle(study)
    plan = terms.plan
    assert isinstance(plan, TensorPlan)
    parties = Parties(
        sharing=terms.sharings,
        louder=noise_factors(study, plan),
    )
    counted = None
    if rows is not None:
        weights = study.row_weights()
        parts = [weights[name] for name in terms.names]
        counted = max(1, round(rows * math.fsum(parts) / len(weights)))
    found = expect(plan, counted or _SOME_ROWS, parties, document_words=document_words)
    return ExpectedStudy(found, counted, hidden=len(terms.names) > 1)
