"""A guarantee: a claim about a definition, an adversary and a calculation."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from eigenveil.errors import number_text
from eigenveil.markup import Node, fragment, html_of, listing, node, table

Adjacency = Literal["add-remove", "replace-one"]
ADJACENCIES: tuple[Adjacency, ...] = ("add-remove", "replace-one")

UNNAMED_UNIT = "groups"
"""The name of units that were given beside the rows, and not as a column."""
_NEIGHBOURS = {
    "add-remove": "adding or removing one row",
    "replace-one": "changing one row, where the number of rows is public",
}
_UNITS = {
    "add-remove": "adding or removing all rows of one {unit}",
    "replace-one": "replacing all rows of one {unit} by those of another",
}
_VIEWS = {
    "outsider": "anyone who sees the released result",
    "site": "another site of the study, which sees the result and knows its own noise",
    "aggregator": "the aggregator, who sees every message and follows the protocol",
    "helper": "the noise helper, who knows every mask and sees the result",
}
_JOINT_VIEWS = {
    "aggregator": "the aggregator together with {}, who pool what they see and follow the protocol",
    "helper": "the noise helper together with {}, who know every mask and see the result",
}


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """(epsilon, delta)-differential privacy, with everything needed to know what that means.

    Attributes
    ----------
    epsilon, delta : float
        The bound: ``Pr[result in S | X] <= exp(epsilon) Pr[result in S | X'] + delta``.
    mu : float or None
        The Gaussian-DP parameter when all noise is Gaussian, else ``None``.
    adjacency : {"add-remove", "replace-one"}
        Which data sets X, X' are neighbours.
    view : str
        What the adversary sees.
    calculation : str
        How the numbers follow from the recorded noise.
    certified : bool
        Whether the claim is proved for the run as it was made.
    unit : str or None
        Whose rows are protected together: the column that says it; each row by itself by default.
    assumptions : tuple of str
        What must be true of the rows for the claim to mean what it says.
    caveats : tuple of str
        What the reader must know; for an uncertified guarantee, why it is not certified.
    """

    epsilon: float
    delta: float
    mu: float | None
    adjacency: Adjacency
    view: str = "outsider"
    calculation: str = ""
    certified: bool = True
    caveats: tuple[str, ...] = field(default=())
    unit: str | None = None
    assumptions: tuple[str, ...] = field(default=())

    def __str__(self) -> str:
        bound = f"({self.epsilon:.6g}, {number_text(self.delta, 3)})-differentially private"
        if self.mu is not None:
            bound += f" (mu = {self.mu:.6g})"
        sentence = f"{bound} for {self.neighbours}, against {_who_sees(self.view)}"
        if self.calculation:
            sentence += f", by {self.calculation}"
        if self.certified:
            return sentence + "."
        return f"NOT CERTIFIED ({'; '.join(self.caveats)}). By its numbers {sentence}."

    def as_dict(self) -> dict[str, Any]:
        """The guarantee as plain JSON values."""
        lists = {"caveats": list(self.caveats), "assumptions": list(self.assumptions)}
        return asdict(self) | lists

    def _repr_html_(self) -> str:
        """The guarantee in a notebook."""
        return html_of(self.as_node())

    def as_node(self) -> Node:
        """The guarantee as a piece of HTML, with what it assumes and its caveats."""
        rows = [
            ("epsilon", f"{self.epsilon:.6g}"),
            ("delta", number_text(self.delta, 3)),
            ("mu (Gaussian differential privacy)", "-" if self.mu is None else f"{self.mu:.6g}"),
            ("hides", self.neighbours),
            ("against", _who_sees(self.view)),
            ("computed by", self.calculation or "-"),
        ]
        notes = [f"assumes: {each}" for each in self.assumptions]
        notes += [f"note: {each}" for each in self.caveats]
        state = "certified" if self.certified else "NOT CERTIFIED"
        return fragment(
            f"Privacy guarantee: {state}",
            table(("what", "value"), rows, style=True),
            listing(notes) if notes else node("span"),
        )

    @property
    def neighbours(self) -> str:
        """What two data sets differ in that the claim is about, in words."""
        return neighbours_text(self.adjacency, self.unit)


def neighbours_text(adjacency: Adjacency, unit: str | None) -> str:
    """What neighbouring data sets differ in, in words."""
    if unit is None:
        return _NEIGHBOURS[adjacency]
    return _UNITS[adjacency].format(unit="group" if unit == UNNAMED_UNIT else repr(unit))


def _who_sees(view: str) -> str:
    """The adversary of a view such as ``"aggregator with 2 sites"``, in words."""
    who, joint, rest = view.partition(" with ")
    count = rest.removesuffix(" sites")
    if not (joint and who in _JOINT_VIEWS and count.isdecimal()):
        return _VIEWS.get(view, view)
    return _JOINT_VIEWS[who].format(f"{count} site" if count == "1" else f"{count} sites")
