"""The ``eigenveil`` command: its sub-commands, and how errors leave it."""

from __future__ import annotations

import importlib.metadata
import sys
import traceback
from typing import Annotated, Any

import typer

from eigenveil.cli import study_run
from eigenveil.cli.aggregator import aggregator_app
from eigenveil.cli.audit import audit
from eigenveil.cli.certify import certify
from eigenveil.cli.fit import fit
from eigenveil.cli.flare import flare_app
from eigenveil.cli.ledger import ledger_app
from eigenveil.cli.plan import plan
from eigenveil.cli.reproduce import reproduce
from eigenveil.cli.show import show
from eigenveil.cli.simulate_tree import simulate_tree
from eigenveil.cli.site import site_app
from eigenveil.cli.study import study_app
from eigenveil.cli.transform import transform
from eigenveil.cli.watch import watch
from eigenveil.errors import EigenveilError

app = typer.Typer(
    name="eigenveil",
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


for _command in (fit, transform, show, certify, plan, watch, simulate_tree, reproduce, audit):
    app.command()(_command)
for _of_study in (study_run.run, study_run.status, study_run.abort, study_run.fetch):
    study_app.command()(_of_study)
app.add_typer(study_app, name="study")
app.add_typer(site_app, name="site")
app.add_typer(aggregator_app, name="aggregator")
app.add_typer(ledger_app, name="ledger")
app.add_typer(flare_app, name="flare")

_INTERNAL = 70
# The base of what typer raises for a wrong option: click's, or its own copy of it, by version.
_WrongUsage: Any = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; exits with a status, never with a traceback (but for --debug)."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    try:
        status = typer.main.get_command(app).main(
            words, prog_name="eigenveil", standalone_mode=False
        )
    except EigenveilError as error:
        if debug:
            traceback.print_exc()
        _say(error.message, error.hint)
        if spent := getattr(error, "spent", None):
            print(f"spent: before this was known, a release that is {spent}", file=sys.stderr)
        sys.exit(error.exit_status)
    except (typer.Abort, KeyboardInterrupt):
        _say("stopped.", "Nothing was written.")
        sys.exit(130)
    except _WrongUsage as error:
        error.show()
        sys.exit(error.exit_code)
    except Exception as error:
        if debug:
            traceback.print_exc()
        _say(
            f"unexpected {type(error).__name__}: {error}.",
            "This is a defect; run again with --debug and report what it prints.",
        )
        sys.exit(_INTERNAL)
    sys.exit(status if isinstance(status, int) else 0)


def _say(message: str, hint: str) -> None:
    print(f"error: {message}", file=sys.stderr)
    if hint:
        print(f"hint: {hint}", file=sys.stderr)
