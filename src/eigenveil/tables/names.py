"""Names of columns: which look like identifiers or values, and how many columns there may be.

Names are public: they stand in results, studies and messages.  A table without a line of names
would publish its first row in their place, so that names that read as values are refused wherever
names enter.  A component that is ``patient_id`` is of no use, and an identifier is the last thing
to publish (tables.md, section 5): names are split into words at blanks, signs and changes of case,
so that ``patient_id`` and ``PatientID`` are found, ``humidity``, ``acid``, ``width`` and the genes
ID1 and IDH1 are not.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import count, pairwise
from typing import Any

from numpy.typing import NDArray

from eigenveil.errors import DataError, listed, short_name
from eigenveil.moments.source import RowSource
from eigenveil.origins import Origin

_BREAK = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[\W_]+")
# letters that are no other letter with an accent, and signs for "number", as in N° and Patient #
_PLAIN = str.maketrans(
    {"\u0131": "i", "ł": "l", "Ł": "L", "ø": "o", "Ø": "O", "ß": "ss", "°": "o ", "#": " no "}
)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# as any word of a name
_ANYWHERE = _words(
    "mrn ssn uuid guid nino bsn cpf dni pesel kvnr personnummer fodselsnummer pseudonym tckn nhc "
    "aktenzeichen patientenkennung matricule prontuario"
)
# two words in order, such as codice fiscale
_PAIRS = (
    *(("securite", "sociale"), ("historia", "clinica"), ("codice", "fiscale")),
    *(("tessera", "sanitaria"), ("historii", "choroby"), ("rodne", "cislo")),
)
# as the first or the last word
_OUTSIDE = _words("id ids uid")
# as the whole name
_WHOLE = _words(
    "eid iid pid index seqn subject patient participant respondent user rownames expediente"
)
# of whom or what a number, key or code tells which one it is
_OF = _words(
    """
    patient subject person participant respondent user customer client member employee student
    staff record case chart account admission encounter visit sample specimen household device
    insurance licence license passport security nhs hospital phone telephone mobile fax row order
    transaction
    pat patienten patientin patientinnen personen fall proband probanden teilnehmer versicherten
    aufnahme besuch kunde kunden personal mitarbeiter mitglieds versicherungs
    krankenversicherungs sozialversicherungs
    patiente dossier sejour assure malade personne
    paciente expediente historia caso persona cliente visita afiliado
    paziente cartella ricovero assistito
    utente doente pessoa processo
    bezoek opname klant persoons zaak deelnemer burgerservice
    pacjent pacjenta pacjentki przypadek przypadku osoba osoby karty klienta ubezpieczonego
    patientens journal besoks lop kund deltagar
    cpr sags forlobs besogs deltager
    pacient pacienta pripad pripadu pojistence chorobopisu
    hasta dosya kisi kimlik vaka sicil musteri katilimci protokol
    """
)
_TELLING = _words(
    """
    no nr num number nbr key code hash
    nummer numero nro numer cislo numara numarasi kod kode kodu codigo codice
    """
)
# as the first word, before that of whom: numero de paciente
_TELLING_FIRST = _words("no nr num numero nro numer cislo code kod codigo codice")
# of columns of text only: numbers of e-mails are features
_NAMES = _words(
    "name names email mail surname firstname lastname forename fullname username address"
)
_COUNTED = re.compile(r"Unnamed: \d+|level_\d+|__index_level_\d+__")


def looks_like_identifier(name: str, *, is_text: bool = False) -> bool:
    """Whether a column of this name tells which person, or which row, it is about."""
    if _COUNTED.fullmatch(name):
        return True
    words = [word.lower() for word in _BREAK.split(_plain(name)) if word]
    if not words:
        return False
    last = words[-1]
    if _ANYWHERE & set(words) or {words[0], last} & _OUTSIDE:
        return True
    if len(words) == 1:
        joined = re.fullmatch(r"(\w+?)(id|ids|number|no|nummer|nr|code|kode?)", last)
        return (
            last in _WHOLE
            or (joined is not None and joined[1] in _OF)
            or (is_text and last in _NAMES)
        )
    if (last in _TELLING and words[-2] in _OF) or (words[0] in _TELLING_FIRST and last in _OF):
        return True
    if any(pair in _PAIRS for pair in pairwise(words)):
        return True
    return is_text and last in _NAMES


def _plain(name: str) -> str:
    """A name without accents: numéro is numero."""
    apart = unicodedata.normalize("NFKD", name.translate(_PLAIN))
    return "".join(each for each in apart if not unicodedata.combining(each))


def check_identifiers(
    whose: str, names: Sequence[str] | None, *, text: Collection[str] = ()
) -> None:
    """Refuse columns that look like identifiers, where no schema says what they are."""
    found = [name for name in names or () if looks_like_identifier(name, is_text=name in text)]
    if not found:
        return
    shown = [repr(short_name(name)) for name in found[:5]]
    if len(found) > 5:
        shown.append(f"{len(found) - 5} more")
    more = f", as does {listed(shown[1:])}" if shown[1:] else ""
    raise DataError("identifier-column", whose=whose, column=shown[0], more=more)


# -- Columns that look like identifiers, by their names and types; values are never looked at.


MOST_COLUMNS = 1 << 16
"""Most columns of a table whose entries are all stored."""
MOST_SPARSE_COLUMNS = 1 << 24
"""Most columns where only entries that are not 0 are stored."""
MOST_VARIANTS = 1 << 18
"""Most columns of genotypes, which take 2 bits each where they are stored."""

# pandas names the columns of an array by counting; fewer could be a row
_FEWEST_COUNTED = 8
# what readers of tables take for a value that is missing, or a truth value
_WORDS = frozenset(["#N/A", "#N/A N/A", "#NA", "<NA>", "N/A", "NA", "NULL", "NaT", "n/a", "null"])
_TRUTHS = frozenset(["true", "false"])
_DIGITS = re.compile(r"\d")
# thousands apart by a point, comma, apostrophe or space; a decimal point or comma; an exponent
_NUMBER = re.compile(
    r"(?=[+-]?[.,]?\d)[+-]?"
    "(?:\\d{1,3}(?:[.,'\u2019 \u00a0\u202f]\\d{3})+|\\d*)"
    r"(?:[.,]\d*)?(?:[eEdD][+-]?\d+)?\s?%?"
    r"|[+-]?0[xX][0-9a-fA-F]+"
    r"|[+-]?1\.#(?:IND|QNAN|INF)"
)
_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|"
    r"sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"
)
_GAP = r"[-/., ]{1,2}"
_DAY = (
    r"(?:\d{1,4}[-/.]\d{1,2}(?:[-/.]\d{1,4})?"
    r"|\d{4}-?W\d{2}(?:-?\d)?"
    rf"|(?:\d{{1,4}}{_GAP})?{_MONTH}{_GAP}\d{{1,4}}(?:{_GAP}\d{{2,4}})?"
    rf"|\d{{1,4}}{_GAP}{_MONTH})"
)
# genes that a spreadsheet took for days, of so many names at least, and what part of them at most
_DAMAGED = re.compile(
    r"\d{1,2}-(?:Feb|Mar|Apr|May|Jun|Jul|Sept?|Oct|Nov|Dec)|(?:Mar|Sep|Dec)-\d{2}"
)
_FEWEST_GENES, _MOST_DAMAGED = 100, 0.05
_CLOCK = r"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?\s?(?:[ap]\.?m\.?)?\s?(?:z|utc|[+-]\d{2}:?\d{2})?"
_TIME = re.compile(rf"{_DAY}(?:[T ,]\s?{_CLOCK})?|{_CLOCK}", re.IGNORECASE)


def reads_as_value(name: str) -> bool:
    """Whether a name is what a cell would be: a number, a date, a time, true, missing."""
    text = name.strip().replace("\u2212", "-")
    if not text:
        return False
    if text in _WORDS or text.lower() in _TRUTHS:
        return True
    try:
        float(text)
    except ValueError:
        pass
    else:
        return True
    if _DIGITS.search(text) is None:
        return False
    words = text.split()
    if len(words) > 1 and all(map(reads_as_value, words)):  # cells with blanks between
        return True
    return bool(_NUMBER.fullmatch(text) or _TIME.fullmatch(text))


def is_counted(names: Sequence[str]) -> bool:
    """Whether names are 0, 1, ... or 1, 2, ... in order, at least 8: an unnamed array's."""
    if len(names) < _FEWEST_COUNTED:
        return False
    return any(
        all(name == str(number) for number, name in enumerate(names, start=start))
        for start in (0, 1)
    )


def are_damaged_genes(names: Sequence[str], wrong: Sequence[str]) -> bool:
    """Whether those that read as dates may be genes that a spreadsheet damaged.

    MARCH1 and SEPT2 become 1-Mar and 2-Sep (Ziemann et al., Gene name errors are widespread in the
    scientific literature, 2016). A few dates of day and month beside at least 100 other names are
    taken for genes: the first row of a table would have publishable texts in all other places.
    """
    many = len(names) >= _FEWEST_GENES and len(wrong) <= _MOST_DAMAGED * len(names)
    return many and all(_DAMAGED.fullmatch(name) for name in wrong)


def numbered_names(columns: int) -> list[str]:
    return [f"c{number}" for number in range(1, columns + 1)]


# -- What is refused.


def check_names(
    whose: Origin | str,
    names: Sequence[str] | None,
    *,
    places: Sequence[int] | None = None,
    of_words: bool = False,
) -> None:
    """Refuse names of columns that read as values; the error names the place, not the value."""
    if names is None or is_counted(names):
        return
    wrong = [place for place, name in enumerate(names) if reads_as_value(name)]
    if not wrong or (of_words and len(wrong) < len(names)):
        return
    if are_damaged_genes(names, [names[place] for place in wrong]):
        return
    origin = Origin(whose) if isinstance(whose, str) else whose
    place = origin.column(wrong[0] if places is None else places[wrong[0]])
    more = f", as of {len(wrong) - 1} more," if len(wrong) > 1 else ""
    raise DataError("header-is-data", whose=origin.name, name=f"the name of {place}{more}")


def check_features(
    whose: Origin | str, rows: RowSource, *, of_words: bool = False, targets: bool = False
) -> None:
    """Refuse columns whose names read as values, or as identifiers without a schema.

    Columns with the role of targets, too, where a fit does not take ``targets``.
    """
    check_names(whose, rows.names, of_words=of_words)
    name = whose if isinstance(whose, str) else whose.name
    if rows.schema is not None:
        rows.schema.check_targets(name, taken=targets)
    elif not of_words:
        check_identifiers(name, rows.names)


def first_difference(found: Sequence[str], wanted: Sequence[str]) -> str:
    """Where two lists of columns part, in words that quote neither: both may be a site's own."""
    for number, (one, other) in enumerate(zip(found, wanted, strict=False), start=1):
        if one != other:
            return f"column {number} (from 1) has another name"
    return "their numbers differ"


def check_width(whose: str, columns: int, *, most: int | None = None) -> None:
    """Refuse more columns than are read, ``MOST_COLUMNS`` or another limit."""
    most = MOST_COLUMNS if most is None else most
    if columns > most:
        raise DataError("too-many-columns", whose=whose, columns=columns, most=most)


# -- Names of genes.

# Columns of var that name genes, where its index does not: those of CellRanger, cellxgene, scanpy.
_NAMING = ("gene_symbols", "gene_symbol", "feature_name", "gene_name", "gene_names", "symbol")
_IDENTIFYING = ("gene_ids", "gene_id", "ensembl_id", "feature_id")


def gene_names(
    whose: str,
    index: Sequence[Any] | NDArray[Any],
    others: Mapping[str, Callable[[], Sequence[Any] | NDArray[Any]]],
) -> list[str]:
    """Names of genes: the index of ``var``; where it has only numbers, a column that names genes.

    Names that are there twice become ``NAME-1``, ``NAME-2``, ..., as by AnnData's
    ``var_names_make_unique``. Where the index only counts, from 0 or 1, and no column has names,
    they are c1, c2, ...
    """
    own = [str(name) for name in index]
    if not _are_values(own):
        return unique(own)
    for name in (*_NAMING, *_IDENTIFYING):
        if name in others:
            found = [str(each) for each in others[name]()]
            if len(found) == len(own) and not _are_values(found):
                return unique(found)
    if any(own == [str(number + start) for number in range(len(own))] for start in (0, 1)):
        return numbered_names(len(own))
    raise DataError("header-is-data", whose=whose, name="most names of genes")


def _are_values(names: Sequence[str]) -> bool:
    return 2 * sum(map(reads_as_value, names)) >= len(names)


def unique(names: Sequence[str]) -> list[str]:
    """Names of which none is there twice: the second and further ones get -1, -2, ..."""
    taken, seen = set(names), set()
    found = []
    for name in names:
        if name in seen:
            name = next(new for number in count(1) if (new := f"{name}-{number}") not in taken)
            taken.add(name)
        seen.add(name)
        found.append(name)
    return found
