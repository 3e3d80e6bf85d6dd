"""The circulant graph of sites that share masks, and how many give a secret back.

Site i is a neighbour of the next and the previous ``degree / 2`` on a ring. Of all graphs with this
degree it is among the best connected (Harary 1962): whatever ``degree - 1`` sites are taken away,
the others stay connected, so that masks hide every remaining site among all the remaining ones.
"""

from __future__ import annotations

from collections.abc import Sequence


def neighbours(member: str, members: Sequence[str], degree: int) -> tuple[str, ...]:
    """Neighbours of a member in the order of ``members``; all others where the degree allows."""
    return _around(members.index(member), members, degree)


def graph(members: Sequence[str], degree: int) -> dict[str, tuple[str, ...]]:
    """The neighbours of all."""
    return {name: _around(place, members, degree) for place, name in enumerate(members)}


def _around(place: int, members: Sequence[str], degree: int) -> tuple[str, ...]:
    count, reach = len(members), (degree + 1) // 2
    if 2 * reach >= count - 1:
        return (*members[:place], *members[place + 1 :])
    places = {(place + step) % count for step in range(-reach, reach + 1)} - {place}
    return tuple(members[other] for other in sorted(places))


def threshold(holders: int, collusion: int) -> int:
    """Shares that give a secret back.

    So many that an aggregator and ``collusion`` holders, who tell it everything, cannot have both
    of a site's secrets of a round by telling the other holders different stories.
    """
    return (holders + collusion) // 2 + 1


def even(count: int) -> int:
    """The count, or the next even one: a ring has as many neighbours on either side."""
    return 2 * ((count + 1) // 2)
