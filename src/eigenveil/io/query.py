"""A query of a database as a place of rows."""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal, NoReturn
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

from eigenveil.errors import DataError

NAME = "sql/query"
"""By what its format is known: no file has a slash in its name."""

# What a URL says after a question mark that names the database.
_PUBLIC = ("dbname", "host", "port", "service")


@dataclass(frozen=True)
class Query:
    """The rows that a database answers to one query, for ``open_rows``.

    A ledger knows them by the database and the text of the query, whatever rows there are: another
    text is another table, unless both are charged to one account (``data_set``).

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
            raise DataError("The query is empty.", hint="Give one SELECT.", code="query-failed")
        try:
            parts = self.parts
            usable = bool(parts.scheme) and "://" in self.uri and (parts.port or True)
        except ValueError:
            usable = False
        if not usable:
            raise DataError(
                "The database is not named by a URL.",
                hint="For example postgresql://host/name or sqlite:///file.db.",
                code="bad-url",
            )

    @property
    def parts(self) -> SplitResult:
        """The parts of the database's URL."""
        return urlsplit(self.uri)

    @property
    def file(self) -> Path:
        """The file of an SQLite database.

        As SQLAlchemy has it: three slashes before a relative path, four before an absolute one.
        """
        return Path(unquote(self.parts.path).removeprefix("/"))

    @property
    def text(self) -> str:
        """The query without blanks and semicolons around it."""
        return self.sql.strip().rstrip(";").rstrip()

    @property
    def database(self) -> str:
        """The database's URL without anything secret; a file by its whole path."""
        parts = self.parts
        if parts.scheme == "sqlite":  # one file is one database, from whatever folder it is named
            return f"sqlite:///{self.file.resolve()}"
        host = parts.netloc.rpartition("@")[2]
        named = sorted(pair for pair in parse_qsl(parts.query) if pair[0] in _PUBLIC)
        return f"{parts.scheme}://{host}{parts.path}{'?' if named else ''}{urlencode(named)}"

    def __str__(self) -> str:
        digest = hashlib.sha256(self._words.encode()).hexdigest()[:8]
        return f"{self.database} (query {digest})"

    @property
    def _words(self) -> str:
        return " ".join(self.text.split())

    def __fspath__(self) -> NoReturn:
        raise DataError(f"{self} is no file.", hint="Give a file.", code="not-on-disk")

    def resolve(self) -> Query:
        """Itself."""
        return self

    def open(self, mode: Literal["rb"] = "rb", /) -> IO[bytes]:
        """What a ledger knows it by: the database and the query, and no content."""
        assert mode == "rb"
        return io.BytesIO(f"{self.database}\n{self._words}".encode())
