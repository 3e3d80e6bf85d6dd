"""The ``eigenveil`` command: its sub-commands, and how errors leave it."""

from __future__ import annotations

import importlib.metadata
import sys
import traceback
import warnings
from typing import Annotated, Any

import typer

from eigenveil.cli.commands import Commands
from eigenveil.cli.screen import tell
from eigenveil.errors import EigenveilError, InvalidRowsWarning, NoisyResultWarning, OutputError

app = typer.Typer(
    name="eigenveil",
    cls=Commands,
    help="Differentially private PCA, mixtures and topics of data that cannot be pooled. --debug "
    "anywhere on the line shows the traceback of an error.",
    no_args_is_help=True,
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def _options(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        typer.echo(f"eigenveil {importlib.metadata.version('eigenveil')}")
        raise typer.Exit


_INTERNAL = 70
# The base of what typer raises for a wrong option: click's, or its own copy of it, by version.
_WrongUsage: Any = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; exits with a status, never with a traceback (but for --debug)."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            warnings.simplefilter("always", InvalidRowsWarning)
            warnings.simplefilter("always", NoisyResultWarning)
            command = typer.main.get_command(app)
            # not its main, which swallows an interrupt and what that says was spent
            with command.make_context("eigenveil", words) as made:
                status = command.invoke(made)
    except typer.Exit as done:
        sys.exit(done.exit_code)
    except EigenveilError as error:
        if debug:
            traceback.print_exc()
        _say(error.message, error.hint)
        _say_spent(error)
        sys.exit(error.exit_status)
    except (typer.Abort, KeyboardInterrupt) as error:
        _say("stopped.", "Nothing was written.")
        _say_spent(error)
        sys.exit(130)
    except _WrongUsage as error:
        context = getattr(error, "ctx", None)
        path = "eigenveil" if context is None else context.command_path
        if said := error.format_message():  # nothing where the help itself was shown
            _say(said, f"'{path} --help' shows what there is.")
        sys.exit(error.exit_code)
    except (OSError, MemoryError) as error:  # of the machine, not of the program
        if debug:
            traceback.print_exc()
        where = getattr(error, "filename", None)
        what = getattr(error, "strerror", None) or str(error) or "out of memory"
        _say(f"{what}." if where is None else f"{where}: {what}.", "Nothing more was done.")
        sys.exit(OutputError.exit_status)
    except Exception as error:
        if debug:
            traceback.print_exc()
        _say(
            f"unexpected {type(error).__name__}: {error}.",
            "This is a defect; run again with --debug and report what it prints.",
        )
        _say_spent(error)
        sys.exit(_INTERNAL)
    sys.exit(status if isinstance(status, int) else 0)


_showwarning = warnings.showwarning


def _show_warning(
    message: Warning | str, category: type[Warning], *place: Any, **more: Any
) -> None:
    """One line for the owner of the rows of the package's own warnings; others as always."""
    if issubclass(category, InvalidRowsWarning | NoisyResultWarning):
        tell(f"warning: {message}")
    else:
        _showwarning(message, category, *place, **more)


def _say(message: str, hint: str) -> None:
    tell(f"error: {message}")
    if hint:
        tell(f"hint: {hint}")


def _say_spent(error: BaseException | None) -> None:
    """What had been released when it stopped, where that was anything."""
    while error is not None:  # an interrupt comes wrapped in typer's own
        if spent := getattr(error, "spent", None):
            tell(f"spent: before this was known, a release that is {spent}")
            return
        error = error.__cause__ or error.__context__
