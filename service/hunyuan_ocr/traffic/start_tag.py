"""The place of one party in start-time fair queueing: when, in virtual time, its next page starts.

P. Goyal, H. M. Vin, H. Cheng, "Start-time fair queueing" (SIGCOMM 1996).
"""

from __future__ import annotations


class StartTag:
    def __init__(self, virtual: float = 0.0) -> None:
        self.start = virtual
        self._joined = virtual

    def join(self, virtual: float) -> None:
        """It wants something again: what it did not ask for meanwhile is lost."""
        self.start = self._joined = max(self.start, virtual)

    def take(self, cost: float) -> None:
        self.start += cost

    def settle(self, extra: float) -> None:
        """A page taken cost `extra` more than it was taken for, or less; back to where it joined
        at most."""
        self.start = max(self.start + extra, self._joined)
