"""A query of a database as a place of rows."""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Literal, NoReturn
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

from eigenveil.errors import DataError

NAME = "sql/query"
"""By what its format is known: no file has a slash in its name."""

# What a URL says after a question mark that names the database.
_PUBLIC = ("dbname", "host", "port", "service")
_SYNONYMS = {"postgres": "postgresql"}
_IN_FILES = ("sqlite",)
_KINDS = ("postgresql", "snowflake", *_IN_FILES)


def kind_of(uri: str) -> str:
    """The kind of a database, by which its driver is called; empty where it is no URL."""
    scheme, between, _ = uri.partition("://")
    kind = scheme.lower().partition("+")[0] if between else ""
    return _SYNONYMS.get(kind, kind)


def is_database(text: str) -> bool:
    """Whether a place of rows is a database's URL: of those below, or of an installed driver.

    Others are stores' and web servers'.
    """
    kind = kind_of(text)
    return kind in _KINDS or (kind.isidentifier() and find_spec(f"adbc_driver_{kind}") is not None)


@dataclass(frozen=True, eq=False)
class Query:
    """The rows that a database answers to one query, for ``open_rows``.

    A ledger knows them by the database and the text of the query, whatever rows there are: another
    text is another table, unless both are charged to one account (``data_set``). Two are equal
    where a ledger knows them as one.

    Parameters
    ----------
    sql : str
        One query. It is not changed, but for being read as ``SELECT ... FROM (query)``.
    uri : str
        The database, such as ``postgresql://host/name`` or ``sqlite:///file.db``: shown without
        user and password, which are best left to the database's own files (``~/.pgpass``).

    Raises
    ------
    DataError
        With code ``bad-url``, when it cannot be one.
    """

    sql: str
    uri: str = field(repr=False)

    name = NAME
    suffix = ""

    def __post_init__(self) -> None:
        if not self.text:
            raise DataError("empty-query")
        try:
            parts = self.parts
            usable = bool(parts.scheme) and "://" in self.uri and (parts.port or True)
        except ValueError:
            usable = False
        if not usable:
            raise DataError("bad-database-url")

    @property
    def parts(self) -> SplitResult:
        """The parts of the database's URL."""
        return urlsplit(self.uri)

    @property
    def file(self) -> Path | None:
        """The file of a database that is one, such as SQLite's.

        As SQLAlchemy has it: three slashes before a relative path, four before an absolute one.
        """
        in_file = self.kind in _IN_FILES
        return Path(unquote(self.parts.path).removeprefix("/")) if in_file else None

    @property
    def text(self) -> str:
        """The query without blanks and semicolons around it."""
        return self.sql.strip().rstrip(";").rstrip()

    @property
    def database(self) -> str:
        """The database's URL without anything secret; a file by its whole path."""
        parts = self.parts
        if self.file is not None:  # one database, from whatever folder it is named
            return f"{self.kind}:///{self.file.resolve()}"
        host = parts.netloc.rpartition("@")[2]
        named = sorted(pair for pair in parse_qsl(parts.query) if pair[0] in _PUBLIC)
        return f"{parts.scheme}://{host}{parts.path}{'?' if named else ''}{urlencode(named)}"

    @property
    def kind(self) -> str:
        """The kind of the database, such as ``postgresql``."""
        return kind_of(self.uri)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Query) and self._known_by == other._known_by

    def __hash__(self) -> int:
        return hash(self._known_by)

    @property
    def _known_by(self) -> tuple[str, str]:
        return self.database, self._words

    def __str__(self) -> str:
        digest = hashlib.sha256(self._words.encode()).hexdigest()[:8]
        return f"{self.database} (query {digest})"

    @property
    def _words(self) -> str:
        return " ".join(self.text.split())

    def __fspath__(self) -> NoReturn:
        raise DataError("not-a-file", path=self)

    def resolve(self) -> Query:
        """Itself."""
        return self

    def absolute(self) -> Query:
        """The same in whatever folder it is asked: a file of SQLite by its whole path."""
        if self.file is None:
            return self
        return replace(self, uri=f"{self.kind}:///{quote(str(self.file.absolute()))}")

    def open(self, mode: Literal["rb"] = "rb", /) -> IO[bytes]:
        """What a ledger knows it by: the database and the query, and no content."""
        assert mode == "rb"
        return io.BytesIO(f"{self.database}\n{self._words}".encode())
