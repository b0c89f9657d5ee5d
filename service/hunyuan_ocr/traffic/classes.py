"""Classes of requests: their shares of the engine, how long they may wait, and their deadlines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

# A document of more pages than this is batch work unless the caller says otherwise.
BATCH_ABOVE_PAGES = 20


class Priority(StrEnum):
    INTERACTIVE = "interactive"
    STANDARD = "standard"
    BATCH = "batch"


@dataclass(frozen=True, slots=True)
class ClassPolicy:
    """What a class is given.

    `share` is its part of the engine while all classes have work waiting; what one leaves, the
    others take. `max_queue_s` bounds the work it may have waiting, in seconds of the whole
    engine. `timeout_s` is the default time for a whole request.
    """

    share: float
    max_queue_s: float
    timeout_s: float


ClassPolicies = Mapping[Priority, ClassPolicy]

DEFAULT_POLICIES: ClassPolicies = {
    Priority.INTERACTIVE: ClassPolicy(share=0.70, max_queue_s=1.0, timeout_s=30.0),
    Priority.STANDARD: ClassPolicy(share=0.25, max_queue_s=8.0, timeout_s=60.0),
    Priority.BATCH: ClassPolicy(share=0.05, max_queue_s=240.0, timeout_s=600.0),
}


def priority_of(asked: Priority | None, pages: int) -> Priority:
    """The class of a request of `pages` pages, which may have asked for one."""
    if asked is not None:
        return asked
    return Priority.BATCH if pages > BATCH_ABOVE_PAGES else Priority.STANDARD


def timeout_s(policies: ClassPolicies, priority: Priority, asked_s: float | None) -> float:
    """Time for a whole request; nobody gets more than batch does."""
    default_s = policies[priority].timeout_s
    return min(asked_s or default_s, policies[Priority.BATCH].timeout_s)
