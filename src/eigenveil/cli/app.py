"""The commands by name: each with one line of help and the place of its code.

A command's module is imported when it is run: the list of commands needs none of the libraries.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import sys
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from eigenveil.app.events import telling
from eigenveil.cli.presenters.screen import notify, show_told
from eigenveil.errors import EigenveilError, OutputError, WrongOption, nearest


@dataclass(frozen=True)
class Command:
    """One command, or a group of them."""

    place: str  # `module:name` of a function, or of a `typer.Typer`
    summary: str  # The first line of its help

    def load(self, name: str) -> Any:
        module, _, attribute = self.place.partition(":")
        found = getattr(import_module(module), attribute)
        if not isinstance(found, typer.Typer):
            alone = typer.Typer(add_completion=False)
            alone.command()(found)
            found = alone
        found.rich_markup_mode = None  # its table leaves 20 of 80 columns for what options mean
        made = typer.main.get_command(found)
        made.name = name
        if isinstance(made, TyperGroup):
            made.help = self.summary
        for command in _with_commands(made):
            _without_variables(command)
            _refuse_repeats(command)
        return made


def _with_commands(command: Any) -> Iterator[Any]:
    yield command
    for other in getattr(command, "commands", {}).values():
        yield from _with_commands(other)


def _without_variables(command: Any) -> None:
    """Leave the environment variables of single options out of the help: one rule names all."""
    for parameter in command.params:
        parameter.show_envvar = False


def _refuse_repeats(command: Any) -> None:
    """Refuse an option that is given twice, where only the last would count."""
    make = command.make_parser

    def make_parser(context: Any) -> Any:
        parser = make(context)
        parse = parser.parse_args

        def parse_args(args: list[str]) -> Any:
            found = parse(args)
            for each, count in Counter(found[2]).items():
                if count > 1 and not (each.multiple or each.is_flag or each.nargs < 0):
                    raise WrongOption("given-twice", option=each.opts[0])
            return found

        parser.parse_args = parse_args
        return parser

    command.make_parser = make_parser


_SUMMARIES = {
    "demo": (
        "Fit private PCA to made-up visits of patients at three hospitals; check the guarantee."
    ),
    "fit": "Fit private PCA, or another --task, to the rows of FILES, or of several sites.",
    "transform": "Write what a result says of the rows of FILES, such as their scores.",
    "show": "Show the components, the releases and the guarantee of a result.",
    "compare": (
        "Show a result beside the exact one of its rows, for their owner alone: NOT PRIVATE."
    ),
    "derive": "Derive a model from a released covariance: no row is read, and nothing is charged.",
    "report": (
        "Write a result as one page of HTML: pictures, tables, guarantees, methods, model card."
    ),
    "export": "Write a result's model for other programs: scikit-learn, safetensors, ONNX.",
    "certify": "Recompute the guarantee of a result and report whether it holds (status 8 if not).",
    "proofs": "Print a proof that a certificate cites, or the list of all proofs.",
    "plan": "Predict what a fit would give, before any data is touched.",
    "watch": "Track the leading directions of rows as they come, and print how they drift.",
    "federate-tree": (
        "Fit private PCA to sites' own files, whose sums are merged up a tree of aggregators."
    ),
    "audit": "Attack mechanisms on worst-case neighbours and compare with what is claimed of them.",
    "schema": "A table's schema: its columns, with their kinds, roles, levels and public ranges.",
    "variants": (
        "A public manifest of genetic variants, which makes genotypes of many sites the same."
    ),
    "study": "A study: one file that several sites agree on, checked before any row is read.",
    "federation": (
        "Who takes part in studies between organisations: keys, requests, the list of members."
    ),
    "site": "A site between organisations: its rows, ledger and approvals.",
    "aggregator": "The aggregator between organisations: it has no rows, and only its own keys.",
    "exchange": "Mail between organisations that a person carries: one file out, one file in.",
    "relay": "Studies between organisations through the FLARE or Flower network that they have.",
    "ledger": "A ledger, of tables or of a site: the privacy budget of rows, and what was spent.",
    "console": "Serve the pages until stopped (Ctrl-C), for tables that the browser brings.",
}
_ELSEWHERE = {  # not in the module of their own name
    **dict.fromkeys(
        ("show", "transform", "compare", "derive", "report", "export"),
        "eigenveil.cli.commands.results",
    ),
    **dict.fromkeys(("proofs", "audit"), "eigenveil.cli.commands.certify"),
    "federate-tree": "eigenveil.cli.commands.fit",
    "relay": "eigenveil.cli.commands.exchange",
    "console": "eigenveil.console.command",
}
_GROUPS = (
    *("schema", "variants", "study", "federation", "site", "aggregator", "exchange", "relay"),
    "ledger",
)


def _place_of(name: str) -> str:
    word = name.replace("-", "_")
    module = _ELSEWHERE.get(name, f"eigenveil.cli.commands.{word}")
    return f"{module}:{word}{'_app' * (name in _GROUPS)}"


COMMANDS = {name: Command(_place_of(name), summary) for name, summary in _SUMMARIES.items()}


def own_call(*words: object) -> list[str]:
    """The words that run this command line with this Python, in a process of its own."""
    return [sys.executable, "-c", "from eigenveil.cli.app import main; main()", *map(str, words)]


_IN_PACKAGES = {"reproduce": "eigenveil-papers"}
"""Commands of packages beside this one, to name what to install where one is absent."""


@cache
def all_commands() -> dict[str, Command]:
    """The package's own commands, and those that installed packages add.

    A package adds one as an entry point of the group ``eigenveil.commands``: a :class:`Command`.
    """
    others = entry_points(group="eigenveil.commands")
    return COMMANDS | {point.name: point.load() for point in others if point.name not in COMMANDS}


def command_named(name: str) -> Command | None:
    """A command by its name; other packages are looked through only where it is not our own."""
    return COMMANDS.get(name) or all_commands().get(name)


class Commands(TyperGroup):
    """The group of all commands, of which only the one that runs is imported."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(all_commands())

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        found = command_named(cmd_name)
        return None if found is None else TyperCommand(cmd_name, help=found.summary)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the first word names, and the words after it."""
        word = args[0] if args else ""
        if word in _IN_PACKAGES and command_named(word) is None:
            raise EigenveilError("not-installed", word=word, package=_IN_PACKAGES[word])
        known = word.startswith("-") or command_named(word) is not None
        if not (known or ctx.resilient_parsing):
            meant = "'--help'" if word == "help" else nearest(word, all_commands())
            raise WrongOption("unknown-command", word=word, meant=meant)
        name, _, rest = super().resolve_command(ctx, args)
        found = None if name is None else command_named(name)
        return name, None if found is None else found.load(str(name)), rest


# -- The ``eigenveil`` command: its sub-commands, and how errors leave it.


app = typer.Typer(
    name="eigenveil",
    cls=Commands,
    help="Differentially private PCA, mixtures and topics of data that cannot be pooled. --debug "
    "anywhere on the line shows the traceback of an error. An environment variable stands for an "
    "option that is not given: EIGENVEIL_FIT_EPSILON for --epsilon of 'fit'.",
    no_args_is_help=True,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
)


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version, and which optional libraries are here."),
    ] = False,
) -> None:
    if version:
        typer.echo(version_text())
        raise typer.Exit


def version_text() -> str:
    """The version, the loops in use, and of every extra its libraries that are here or missing."""
    from eigenveil.moments.compiled import in_use

    version = importlib.metadata.version("eigenveil")
    lines = [f"eigenveil {version}", f"  loops        {in_use()}"]
    for extra, names in optional_libraries().items():
        found = {name: _installed(name) for name in names}
        missing = [name for name, number in found.items() if number is None]
        parts = [", ".join(f"{name} {number}" for name, number in found.items() if number)]
        if missing:
            parts.append(f"missing: {', '.join(missing)} (pip install 'eigenveil[{extra}]')")
        lines.append(f"  {extra:<12} {'; '.join(filter(None, parts))}")
    return "\n".join(lines)


def optional_libraries() -> dict[str, list[str]]:
    """Distributions of each extra, as the installed package declares them for users."""
    found: dict[str, list[str]] = {}
    for text in importlib.metadata.requires("eigenveil") or []:
        match = re.match(r"([A-Za-z0-9._-]+).*extra *== *['\"]([A-Za-z0-9_-]+)['\"]", text)
        if match is not None and match[2] not in ("dev", "docs"):
            found.setdefault(match[2], []).append(match[1])
    return found


def _installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


_INTERNAL = 70
# Of the environment variables of all options, and what a shell sets that completes a word.
_PREFIX, _COMPLETE = "EIGENVEIL", "_EIGENVEIL_COMPLETE"
# The base of what typer raises for a wrong option: click's, or its own copy of it, by version.
_WrongUsage: Any = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; exits with a status, never with a traceback (but for --debug)."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    try:
        with telling(show_told):
            command = typer.main.get_command(app)
            option: Any
            for option in command.params:  # of no command: never meant by a variable
                option.allow_from_autoenv = option.show_envvar = False
            complete: Any = command
            complete._main_shell_completion({}, "eigenveil", _COMPLETE)
            # not its main, which swallows an interrupt and what was spent
            with command.make_context("eigenveil", words, auto_envvar_prefix=_PREFIX) as made:
                status = command.invoke(made)
    except typer.Exit as done:
        sys.exit(done.exit_code)
    except EigenveilError as error:
        if debug:
            traceback.print_exc()
        _report(error.message, error.hint)
        _report_variables(words, f"{error.message} {error.hint}")
        _report_spent(error)
        sys.exit(error.exit_status)
    except (typer.Abort, KeyboardInterrupt) as error:
        _report("stopped.", "Nothing was written.")
        _report_spent(error)
        sys.exit(130)
    except _WrongUsage as error:
        context = getattr(error, "ctx", None)
        path = "eigenveil" if context is None else context.command_path
        if message := error.format_message():  # nothing where the help itself was shown
            _report(message, f"'{path} --help' shows what there is.")
            _report_variables(words, message)
        sys.exit(error.exit_code)
    except (OSError, MemoryError) as error:  # of the machine, not of the program
        if debug:
            traceback.print_exc()
        where = getattr(error, "filename", None)
        what = getattr(error, "strerror", None) or str(error) or "out of memory"
        _report(f"{what}." if where is None else f"{where}: {what}.", "Nothing else was done.")
        sys.exit(OutputError.exit_status)
    except Exception as error:
        if debug:
            traceback.print_exc()
        _report(
            f"unexpected {type(error).__name__}: {error}.",
            "This is a defect; run again with --debug and report what it prints.",
        )
        _report_spent(error)
        sys.exit(_INTERNAL)
    sys.exit(status if isinstance(status, int) else 0)


def _report(message: str, hint: str) -> None:
    notify(f"error: {message}")
    if hint:
        notify(f"hint: {hint}")


def _report_variables(words: Sequence[str], said: str) -> None:
    """The environment variables that set an option that is wrong: nobody sees them on the line."""
    command = [word for word in words[:2] if not word.startswith("-")]
    for count in range(1, len(command) + 1):
        prefix = "_".join([_PREFIX, *command[:count], ""]).replace("-", "_").upper()
        for name in sorted(os.environ):
            option = "--" + name.removeprefix(prefix).replace("_", "-").lower()
            on_the_line = any(word.partition("=")[0] == option for word in words)
            if name.startswith(prefix) and option in said and not on_the_line:
                notify(f"note: {option} is set by the environment variable {name}.")


def _report_spent(error: BaseException | None) -> None:
    """What had been released when it stopped, where that was anything."""
    while error is not None:  # an interrupt comes wrapped in typer's own
        if spent := getattr(error, "spent", None):
            notify(f"spent: before this was known, a release that is {spent}")
            return
        error = error.__cause__ or error.__context__
