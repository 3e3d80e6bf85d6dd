"""What the commands that run for long share: where they answer probes, and how they log."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eigenveil.cli import options
from eigenveil.cli.presenters.screen import say

if TYPE_CHECKING:
    from eigenveil.network.folder import PartyFolder
    from eigenveil.network.health import WatchedParty

Say = Callable[[str], None]

_LOOK = 1.0
_GUARD = threading.Lock()


def print_event(who: str, ids: Mapping[str, str], text: str) -> None:
    """Print an event as one line of JSON, in ASCII: nothing that a terminal could obey."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    line = json.dumps({"time": now, "party": who, **ids, "event": text})
    with _GUARD:
        say(line, most=None)


@dataclass(frozen=True)
class Service:
    """How a command that runs for long is watched."""

    health: str | None  # Where it answers probes
    log_json: bool
    quiet: bool

    def speaker(self, who: str, run: Callable[[], Mapping[str, str]] = dict) -> Say:
        """Prints events: lines for people, or objects for a log's collector."""
        tell = self.teller(who)
        return lambda text: tell(run(), text)

    def teller(self, who: str) -> Callable[[Mapping[str, str], str], None]:
        """The same, of several runs."""
        from eigenveil.cli.presenters.site_console import lines

        say = lines(quiet=self.quiet)

        def tell(ids: Mapping[str, str], text: str) -> None:
            if self.log_json and not self.quiet:
                print_event(who, ids, text)
            else:
                say(text)

        return tell


def service_options(
    health: Annotated[
        str | None,
        typer.Option(
            "--health",
            help="Answer /healthz, /readyz and /metrics at this address, such as 127.0.0.1:9102.",
        ),
    ] = None,
    log_json: Annotated[
        bool, typer.Option("--log-json", help="Print every event as one JSON object a line.")
    ] = False,
    quiet: options.Quiet = False,
) -> Service:
    return Service(health, log_json, quiet)


def start_health(address: str | None, party: WatchedParty, say: Say) -> None:
    """Answer probes, where an address is given."""
    if address is None:
        return
    from eigenveil.network.health import serve

    host, port = serve(address, party).server_address[:2]
    say(f"Health, readiness and metrics: http://{host!s}:{port}/healthz, /readyz, /metrics.")


class StudyEvents:
    """Tells of the studies at an aggregator, from their status files: each change of state once."""

    def __init__(self, party: PartyFolder, say: Callable[[Mapping[str, str], str], None]) -> None:
        self._party, self._say = party, say
        self._known = {run: (state, at) for run, state, at, _ in self._found()}

    def start(self) -> None:
        threading.Thread(target=self._watch, daemon=True, name="eigenveil studies").start()

    def look(self) -> None:
        """Tell what changed since the last look."""
        for run, state, at, found in self._found():
            if self._known.get(run) == (state, at):
                continue
            self._known[run] = (state, at)
            error = found.get("error") or {}
            why = f": {error['code']}" if error.get("code") else ""
            again = f", restarts: {at}" if at else ""
            ids = {"study": str(found.get("study_hash", "")), "run": run}
            self._say(ids, f"Study {found.get('study', '')!r} is {state}{again}{why}, run {run}.")

    def _found(self) -> Iterator[tuple[str, str, int, dict[str, Any]]]:
        from eigenveil.network.results import read_progress

        for folder in sorted(self._party.results.glob("*")):
            found = read_progress(folder)
            if found is not None:
                yield folder.name, str(found["state"]), int(found.get("restarts", 0)), found

    def _watch(self) -> None:
        while True:
            time.sleep(_LOOK)
            self.look()
