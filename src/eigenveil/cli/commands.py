"""The commands by name: what each says of itself in one line, and where it is.

A command's module is imported when it is run: the list of commands needs none of the libraries.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup


@dataclass(frozen=True)
class Command:
    """One command, or a group of them.

    Attributes
    ----------
    place : str
        ``module:name`` within ``eigenveil.cli``: of a function, or of a ``typer.Typer``.
    summary : str
        The first line of its help.
    """

    place: str
    summary: str

    def load(self, name: str) -> Any:
        """The command itself, under its name."""
        module, _, attribute = self.place.partition(":")
        found = getattr(import_module(f"eigenveil.cli.{module}"), attribute)
        if not isinstance(found, typer.Typer):
            alone = typer.Typer(add_completion=False)
            alone.command()(found)
            found = alone
        made = typer.main.get_command(found)
        made.name = name
        return made


COMMANDS = {
    "fit": Command(
        "fit:fit",
        "Fit private PCA, a mixture or topics to the rows of FILES, or of several sites.",
    ),
    "transform": Command(
        "transform:transform",
        "Write the scores of the rows of FILES, or their components' probabilities.",
    ),
    "show": Command(
        "show:show", "Show the components, the releases and the guarantee of a result."
    ),
    "certify": Command(
        "certify:certify",
        "Recompute the guarantee of a result and say whether it holds (status 8 if not).",
    ),
    "proofs": Command(
        "proofs:proofs", "Print a proof that a certificate cites, or the list of all proofs."
    ),
    "plan": Command("plan:plan", "Predict what a fit would give, before any data is touched."),
    "watch": Command(
        "watch:watch",
        "Track the leading directions of rows as they come, and print how they drift.",
    ),
    "simulate-tree": Command(
        "simulate_tree:simulate_tree",
        "Play a tree of sites on made-up rows: time, bytes and error of every level.",
    ),
    "reproduce": Command(
        "reproduce:reproduce",
        "Measure figures and tables of the papers again, beside this package's sound algorithms.",
    ),
    "audit": Command(
        "audit:audit",
        "Attack mechanisms on worst-case neighbours and compare with what is claimed of them.",
    ),
    "study": Command(
        "study_run:study_app",
        "What several sites agree on: one file, checked before any row is touched.",
    ),
    "site": Command(
        "site:site_app", "A site between organisations: its owner's rows, ledger and say."
    ),
    "aggregator": Command(
        "aggregator:aggregator_app",
        "The aggregator between organisations: it has no rows, and no key but its own.",
    ),
    "ledger": Command(
        "ledger:ledger_app", "A site's ledger: what may be lost about its rows, and what was."
    ),
    "flare": Command(
        "flare:flare_app",
        "Kits for studies between organisations: each party's key, certificate and policy.",
    ),
}


class Commands(TyperGroup):
    """The group of all commands, of which only the one that runs is imported."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names in their order."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """What stands for a command in the list of them."""
        del ctx
        found = COMMANDS.get(cmd_name)
        return None if found is None else TyperCommand(cmd_name, help=found.summary)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the first word names, and the words after it."""
        name, stub, rest = super().resolve_command(ctx, args)
        return name, stub and COMMANDS[stub.name or ""].load(stub.name or ""), rest
