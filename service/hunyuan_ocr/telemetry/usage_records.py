"""Usage records: a JSON object a line for every request that brought pages, fit for billing."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Mapping
from queue import SimpleQueue

from prometheus_client import Counter

_log = logging.getLogger(__name__)

OFF, STDOUT = "off", "stdout"
_STDOUT_DESCRIPTOR = 1
# Some minutes of a busy replica, in a few megabytes.
_WAITING_MAX = 20_000
# One write for what came meanwhile: to wake a thread for each would cost more than the writing.
_GATHER_S = 0.1
_CLOSE_WITHIN_S = 3.0


class UsageRecords:
    """Writes records to `target` (OFF, STDOUT or a file's path) in a thread of its own.

    What cannot be written is counted in `lost`, whether the disk is full, the reader of a pipe is
    gone, or too slow and the queue full: the event loop never waits. Used between `start` and
    `close`.
    """

    def __init__(self, target: str, lost: Counter) -> None:
        self._target = target
        self._lost = lost
        self._queue: SimpleQueue[Mapping[str, object] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._taken = 0
        self._failing = False
        self._mid_line = False
        self._given_up = threading.Event()

    def start(self) -> None:
        """Raises OSError where the file cannot be opened."""
        if self._target == OFF:
            return
        descriptor = _STDOUT_DESCRIPTOR
        if self._target != STDOUT:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            descriptor = os.open(self._target, flags, 0o640)
        self._thread = threading.Thread(
            target=self._run, args=(descriptor,), name="usage-records", daemon=True
        )
        self._thread.start()

    def write(self, record: Mapping[str, object]) -> None:
        if self._target == OFF:
            return
        if self._thread is None:
            self._lose(1, "the service is not running")
        elif self._queue.qsize() >= _WAITING_MAX:
            self._lose(1)
        else:
            self._queue.put(record)

    def close(self) -> None:
        """Write what waits, as far as that is done within a few seconds."""
        if self._thread is None:
            return
        self._queue.put(None)
        self._thread.join(_CLOSE_WITHIN_S)
        if self._thread.is_alive():
            # Whoever should take them does not; what the thread still holds counts as well.
            self._given_up.set()
            self._lose(self._taken + max(0, self._queue.qsize() - 1))
        self._thread = None

    def _run(self, descriptor: int) -> None:
        try:
            ended = False
            while not ended:
                batch = [self._queue.get()]
                if batch[0] is not None:
                    time.sleep(_GATHER_S)
                while not self._queue.empty():
                    batch.append(self._queue.get())
                ended = None in batch
                self._write_all(descriptor, [record for record in batch if record is not None])
        finally:
            if descriptor != _STDOUT_DESCRIPTOR:
                os.close(descriptor)

    def _write_all(self, descriptor: int, records: list[Mapping[str, object]]) -> None:
        self._taken = len(records)
        # A line that was not finished is ended first, so that it spoils no other.
        ending = b"\n" if self._mid_line else b""
        data = ending + "".join(json.dumps(record) + "\n" for record in records).encode()
        done = 0
        try:
            while done < len(data):
                done += os.write(descriptor, memoryview(data)[done:])
            self._failing = False
        except OSError as error:
            if not self._given_up.is_set():
                self._lose(data.count(b"\n", max(done, len(ending))), error.strerror)
        if done:
            self._mid_line = not data.endswith(b"\n", 0, done)
        self._taken = 0

    def _lose(self, count: int, why: str | None = "they are not taken fast enough") -> None:
        self._lost.inc(count)
        if not self._failing:
            _log.error("usage records are lost: %s", why)
        self._failing = True
