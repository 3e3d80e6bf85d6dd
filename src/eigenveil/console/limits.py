"""How often somebody may try to sign in."""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

_MOST_KEYS = 10_000


@dataclass
class Limit:
    """At most so many within so many seconds, for each key."""

    most: int
    seconds: float
    clock: Callable[[], float] = time.monotonic
    _times: OrderedDict[str, deque[float]] = field(default_factory=OrderedDict)

    def count(self, key: str) -> None:
        """Count one."""
        self._recent(key).append(self.clock())

    def wait(self, key: str) -> float:
        """Seconds until the next one is allowed; 0 where it is now."""
        recent = self._recent(key)
        if len(recent) < self.most:
            return 0.0
        return max(0.0, recent[-self.most] + self.seconds - self.clock())

    def forget(self, key: str) -> None:
        """Begin anew for a key."""
        self._times.pop(key, None)

    def _recent(self, key: str) -> deque[float]:
        recent = self._times.setdefault(key, deque(maxlen=self.most))
        self._times.move_to_end(key)
        while recent and self.clock() - recent[0] > self.seconds:
            recent.popleft()
        while len(self._times) > _MOST_KEYS:
            self._times.popitem(last=False)
        return recent


@dataclass
class SignInLimits:
    """Limits of sign-ins: tries of an address, wrong ones of an account, and of all together."""

    address: Limit = field(default_factory=lambda: Limit(20, 60.0))
    account: Limit = field(default_factory=lambda: Limit(10, 900.0))
    everybody: Limit = field(default_factory=lambda: Limit(120, 60.0))
    refused: int = 0  # How many were refused since the last one that was not

    def wait(self, address: str, account: str) -> float:
        """Seconds until a try is allowed; 0 where it is now, which counts as one."""
        seconds = max(
            self.address.wait(address), self.account.wait(account), self.everybody.wait("")
        )
        if seconds:
            self.refused += 1
            return seconds
        self.refused = 0
        self.address.count(address)
        self.everybody.count("")
        return 0.0

    @property
    def worth_a_line(self) -> bool:
        """Whether it is logged: the first and each hundredth, so that nobody fills the log."""
        return self.refused % 100 == 1
