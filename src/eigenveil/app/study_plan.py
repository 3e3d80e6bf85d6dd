"""What a study would send, cost and give: every protocol's forecast, or what a quality takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from eigenveil.app.events import Tell
from eigenveil.app.forecasts import (
    OF_FITS,
    Outlook,
    TensorOutlook,
    answer_parts,
    answer_values,
    find_quality,
    needs_parts,
    tensor_scene,
    trials_text,
    trials_values,
)
from eigenveil.app.parts import Part, Strong, TablePart, bytes_text
from eigenveil.app.plan import check_expected
from eigenveil.app.presenters.study import (
    adversaries_json,
    adversary_parts,
    components_text,
    counted,
)
from eigenveil.errors import DataError, PrivacyError, WrongOption
from eigenveil.federation.protocol.terms import settle
from eigenveil.federation.protocols import PROTOCOLS
from eigenveil.federation.study.study import Study
from eigenveil.models.model_options import COVARIANCE, MIXTURE, PCA, TOPICS
from eigenveil.models.options import options_of
from eigenveil.models.shapes import rehearse
from eigenveil.models.task import TASKS
from eigenveil.models.tensors.plan import TensorPlan
from eigenveil.planning.forecast import POOLED, Forecast, forecast, noise_factors, pooled, try_study
from eigenveil.planning.predict import parse_spectrum
from eigenveil.planning.protocol import Chosen, choose_protocol
from eigenveil.planning.quality import Sought, WhatItTakes
from eigenveil.planning.tensors import Expected, Parties, expect
from eigenveil.planning.trials import Scenario, Trials

# The forecast of every protocol of mixtures and topics.
_ONLY_SIZES = "only the sizes are forecast for this task"
_FORECASTS = "captured energy", "shows nothing"


def choice_of(study: Study) -> Chosen | None:
    """Which protocol 'auto' is, and why; ``None`` where the study names one."""
    return None if study.is_settled else choose_protocol(study, study.width)


@dataclass(frozen=True)
class StudyData:
    """A study, and the data that it is planned for."""

    asked: Study  # As it was read
    study: Study  # Settled
    choice: Chosen | None  # Of its protocol, where the study left it open
    rows: int | None  # Of all sites together
    spectrum: str
    scenario: Scenario
    fits: int | None = None

    @classmethod
    def of(
        cls, study: Study, *, rows: int | None, spectrum: str, fits: int | None, **scenario: Any
    ) -> StudyData:
        check_expected(**scenario, fits=fits)
        if rows is not None and rows < 1:
            raise DataError("out-of-range", name="rows", value=rows, wanted="1 or more")
        choice = choice_of(study)  # what a run would choose, whatever spectrum is given here
        settled = study if choice is None else study.with_protocol(choice.protocol)
        expected = study.expected_rows if rows is None else rows
        spectra = parse_spectrum(spectrum, study.width)
        made = Scenario(rows=expected or 2, spectrum=spectra, **scenario)
        return cls(study, settled, choice, expected, spectrum, made, fits)


@dataclass(frozen=True)
class StudyPlanned:
    """What a study would give, by each protocol."""

    data: StudyData
    forecasts: Sequence[Forecast]
    outlook: ExpectedStudy | Outlook | None
    trials: Trials

    def as_json(self) -> dict[str, Any]:
        data, study = self.data, self.data.study
        found: dict[str, Any] = {
            "task": study.task,
            "protocol": study.protocol,
            "reason": None if data.choice is None else data.choice.reason,
            "rows": data.rows,
            "spectrum": data.spectrum if self.outlook is None else None,
            "study_hash": data.asked.hash,
            "forecasts": [
                {**forecast_json(each), "chosen": each.protocol == study.protocol}
                for each in self.forecasts
            ],
            "adversaries": adversaries_json(data.asked),
            "exchanges": settle(study).exchanges,
        }
        if self.outlook is not None:
            found |= self.outlook.as_json() | trials_values(self.trials)
        return found

    def parts(self) -> Iterator[Part]:
        data, study, simulated = self.data, self.data.study, self.outlook is None
        amount = "rows not given" if data.rows is None else f"{data.rows:,} rows"
        if data.rows is not None and simulated:
            amount += f", {data.spectrum}"
        sizes = ("bytes a site", "memory")
        yield TablePart(
            f"{study.name}: {counted(len(study.sites), 'site')}, "
            f"{counted(study.width, 'column')}, {components_text(study)}, {amount}",
            ("protocol", *(_FORECASTS if simulated else ()), *sizes, "note"),
            [self._row(each) for each in self.forecasts],
            right=(*_FORECASTS, *sizes),
        )
        yield f"* this study's{'.' if data.choice is None else ': ' + data.choice.reason}"
        if self.outlook is not None:
            yield "bytes: the numbers that leave a site, in all rounds together."
            yield from self.outlook.parts()
            yield trials_text(self.trials, TASKS[study.task], self._scene())
        else:
            yield (
                "captured energy: of the exact subspace's, simulated on Gaussian rows with this "
                "spectrum, as many at every site. shows nothing: the probability that no component "
                f"is usable. {OF_FITS} {POOLED}: for comparison. bytes: the numbers that leave a "
                "site."
            )
            if data.rows is None:
                yield "note: give --rows to have the captured energy predicted."
        yield from adversary_parts(data.asked)
        exchanges = settle(study).exchanges
        yield f"each site answers {exchanges} questions, one after the other."

    def _row(self, each: Forecast) -> list[str | Strong]:
        is_chosen = each.protocol == self.data.study.protocol
        energy = "-" if each.captured_energy is None else f"{each.captured_energy:.3f}"
        cells = [each.protocol + (" *" if is_chosen else "")]
        cells += [energy, each.trials.text()] if self.outlook is None else []
        cells += [bytes_text(n) if n else "-" for n in (each.round_bytes, each.memory_bytes)]
        alone = self.outlook is None
        cells.append(each.note if alone else each.note.removesuffix(_ONLY_SIZES).rstrip("; "))
        return [Strong(cell) for cell in cells] if is_chosen else [*cells]

    def _scene(self) -> str:
        plan = self.data.study.plan(self.data.study.width)
        if isinstance(plan, TensorPlan):
            return tensor_scene(plan, self.data.scenario)
        return f"{TASKS[self.data.study.task].drawn}, {self.data.spectrum}"


def plan_study(data: StudyData) -> StudyPlanned:
    study, rows, spectrum, fits = data.study, data.rows, data.spectrum, data.fits
    outlook = TASKS[study.task].own(_OUTLOOKS)(data)
    found = []
    if outlook is None:
        found.append(pooled(study, study.width, rows, spectrum, fits=fits))
    for protocol in options_of(study.task, "sites")["protocol"].choices:
        if not PROTOCOLS[protocol].settled:
            continue
        try:
            there = study.with_protocol(protocol)
            found.append(forecast(there, study.width, rows, spectrum, fits=fits))
        except PrivacyError as error:
            found.append(Forecast(protocol, None, Trials(), error.message.rstrip("."), 0, 0, 0))
    trials = Trials(note="without --rows")
    if outlook is not None and rows is not None:
        trials = try_study(study, data.scenario, fits=fits)
    return StudyPlanned(data, found, outlook, trials)


@dataclass(frozen=True)
class StudyQuality:
    study: Study
    answer: WhatItTakes

    def as_json(self) -> dict[str, Any]:
        of = {"protocol": self.study.protocol, "study_hash": self.study.hash}
        return {"task": self.study.task, **of, **answer_values(self.answer, TASKS[self.study.task])}

    def parts(self) -> Iterator[Part]:
        yield f"study {self.study.name}, protocol {self.study.protocol}:"
        yield from answer_parts(self.answer, TASKS[self.study.task])
        if self.answer.value is not None and self.answer.sought == "epsilon":
            yield f"next: write epsilon = {self.answer.value:g} into the study"


def plan_study_quality(data: StudyData, quality: float, sought: Sought, tell: Tell) -> StudyQuality:
    if sought == "epsilon" and data.rows is None:
        raise WrongOption("quality-without-rows")
    study, scenario = data.study, data.scenario

    def try_at(value: float, seed: int = 0, rows: int = scenario.rows) -> Trials:
        """Fits with another epsilon, or other rows; sites keep smaller targets of their own."""
        there = replace(scenario, rows=int(value) if sought == "rows" else rows)
        made = study if sought == "rows" else study.with_epsilon(value)
        return try_study(made, there, fits=data.fits, seed=seed)

    fewest = max(2, len(study.sites))
    return StudyQuality(study, find_quality(quality, sought, try_at, fewest=fewest, tell=tell))


def forecast_json(found: Forecast) -> dict[str, Any]:
    fields = asdict(found)
    del fields["trials"]
    fields["captured_energy_error"] = found.trials.quality_error
    fields["shows_nothing"] = found.trials.as_json()
    if found.memory_bytes == 0:  # a protocol that this study cannot have
        fields |= {"message_bytes": None, "round_bytes": None, "memory_bytes": None}
    return fields


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
        values = TensorOutlook(self.found, self.rows or _SOME_ROWS).as_json()
        if self.rows is None:
            values["needs"] = None
        values["round_bytes"] = [
            8 * sum(record.noise.size for record in together) for together in self.found.rounds
        ]
        return values

    def parts(self) -> Iterator[Part]:
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
        yield TablePart(f"what {what}", headings, rows, right=("values", "bytes"))
        if self.rows is None:
            yield "note: give --rows to predict what components need to be seen."
        else:
            yield from needs_parts(self.found, self.rows)


def _counted_rows(data: StudyData) -> int | None:
    """Rows of full weight, of so many of all sites together."""
    weights = data.study.row_weights()
    parts = math.fsum(weights[name] for name in settle(data.study).names) / len(weights)
    return None if data.rows is None else max(1, round(data.rows * parts))


def expect_study(data: StudyData) -> ExpectedStudy:
    terms, rows = settle(data.study), _counted_rows(data)
    plan = terms.plan
    assert isinstance(plan, TensorPlan)
    parties = Parties(sharing=terms.sharings, louder=noise_factors(data.study, plan))
    words = data.scenario.document_words
    found = expect(plan, rows or _SOME_ROWS, parties, document_words=words)
    return ExpectedStudy(found, rows, hidden=len(terms.names) > 1)


def outlook_of_study(data: StudyData) -> Outlook:
    plan: Any = data.study.plan(data.study.width)
    louder = noise_factors(data.study, plan).get("moment", 1.0)
    records = rehearse(plan, plan.budgets, {})
    return Outlook(plan, records, _counted_rows(data), data.spectrum, louder)


# What is stated of a study beside its protocols' forecasts, by its task.
_OUTLOOKS: Mapping[str, Callable[..., Any]] = {
    PCA: lambda _: None,  # the protocols' forecasts say it
    MIXTURE: expect_study,
    TOPICS: expect_study,
    COVARIANCE: outlook_of_study,
}
