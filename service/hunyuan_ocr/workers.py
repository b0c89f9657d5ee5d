"""Worker processes: work that may crash, hang or eat memory without harming the service.

One task at a time runs in one process. A crash, a timeout or a cancelled caller kills that
process and no other; the next task finds a new one in its place.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import multiprocessing
import os
import pickle
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Coroutine
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar, TypeVarTuple

from pebble import ProcessExpired, ProcessPool

from hunyuan_ocr import sandbox
from hunyuan_ocr.errors import DeadlineExceeded, OcrError, PageFailed, Unavailable, WorkerDied

_log = logging.getLogger(__name__)

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_PR_SET_PDEATHSIG = 1
# A task's clock starts when its worker has taken it; a new worker gets this long to be born.
_BIRTH_ALLOWANCE_S = 30.0
_REBIRTH_PAUSE_S = 0.05
_CANCEL_GRACE_S = 0.5


def initialise(nice: int, max_memory_bytes: int | None) -> None:
    """Give a new worker process its manners; call it first, inside the worker.

    It dies with its parent, ignores Ctrl-C (the parent decides), gives way to the event loop by
    `nice` (0 to 19), leaves no core dump (it would hold a caller's page), prints nothing, and its
    address space is at most `max_memory_bytes`.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A Python handler would wait for native code to return; the default action kills at once.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _die_with_parent()
    os.nice(nice)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _silence()
    if max_memory_bytes is not None:
        resource.setrlimit(resource.RLIMIT_AS, (max_memory_bytes, max_memory_bytes))


def _silence() -> None:
    """Native libraries print what they think of a caller's file: that is no log line of ours."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    os.close(nowhere)


def _die_with_parent() -> None:
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    parent = multiprocessing.parent_process()
    if parent is not None and os.getppid() != parent.pid:
        os._exit(1)  # the parent died before the kernel knew that it should tell us


class WorkerPool:
    """`workers` processes, each with one task at a time; used by one event loop.

    A worker is replaced after `max_tasks_per_worker` tasks (0: never) and after every task that
    did not end by itself. `setup(*setup_args)` runs once in each new worker, to load what every
    task needs. Functions, arguments and results must pickle.
    """

    def __init__(
        self,
        *,
        workers: int,
        max_tasks_per_worker: int = 0,
        nice: int = 0,
        max_memory_bytes: int | None = None,
        setup: Callable[..., None] | None = None,
        setup_args: tuple[Any, ...] = (),
    ) -> None:
        self._workers = workers
        self._max_tasks_per_worker = max_tasks_per_worker
        # Bytes, which a new process unpickles when it is ready to: that imports libraries.
        birth = None if setup is None else pickle.dumps((setup, setup_args))
        self._birth_args = (nice, max_memory_bytes, birth)
        # One pool of one process each: processes of a common pool share locks, and one that dies
        # while it holds them would stop them all. None, once there, says that we are closed.
        self._idle: asyncio.LifoQueue[ProcessPool | None] = asyncio.LifoQueue()
        self._slots: set[ProcessPool] = set()
        self._running: set[asyncio.Future[Any]] = set()
        self._background: set[asyncio.Task[None]] = set()
        self._closed = False

    def start(self) -> None:
        """Start all workers; returns before they are warm."""
        for _ in range(self._workers):
            self._idle.put_nowait(self._new_slot())

    async def run(self, function: Callable[[*Ts], T], *args: *Ts, timeout_s: float) -> T:
        """Run `function(*args)` in the next free worker and return what it returns.

        `timeout_s` counts from the moment a worker has taken the task. Cancelling gives a task
        that runs a moment to end by itself, which is cheaper than a new worker, then kills it;
        while still waiting for a free worker it costs nothing.

        Raises what `function` raised where that is an `OcrError`; else `DeadlineExceeded` (its
        time ran out), `PageFailed` (it ran out of memory or raised anything else, or, as
        `WorkerDied`, crashed), or `Unavailable` (the pool is closed).
        """
        for _ in range(self._workers + 1):
            slot, future = await self._begin((function, args), timeout_s)
            try:
                value, error = await self._result(future, timeout_s)
            except BrokenProcessPool:
                _log.warning("an idle worker had died")
                self._replace(slot)  # the task was never begun
                continue
            except asyncio.CancelledError:
                self._in_background(self._let_finish(slot, future))
                raise
            except BaseException:
                self._replace(slot)
                raise
            self._put_back(slot)
            if error is not None:
                for note in getattr(error, "__notes__", ()):
                    _log.error("a worker failed", extra={"fields": {"frames": note.splitlines()}})
                raise error
            return value  # type: ignore[no-any-return]
        raise PageFailed

    async def close(self) -> None:
        """Kill all workers; tasks in flight fail with `Unavailable`. Idempotent."""
        self._closed = True
        self._idle.put_nowait(None)
        for future in tuple(self._running):
            future.cancel()
        for slot in tuple(self._slots):
            self._retire(slot)
        while self._background:
            await asyncio.gather(*self._background)

    async def _begin(
        self, call: tuple[Any, ...], timeout_s: float
    ) -> tuple[ProcessPool, asyncio.Future[Any]]:
        """Hand `call` to an idle worker; one that was killed while idle is replaced first."""
        while True:
            slot = await self._idle.get()
            if slot is None:
                self._idle.put_nowait(None)
                raise Unavailable("The service is shutting down.")
            try:
                job = slot.schedule(_call, args=call, timeout=timeout_s)
            except (BrokenProcessPool, RuntimeError):
                self._replace(slot)
                await asyncio.sleep(_REBIRTH_PAUSE_S)
                continue
            future = asyncio.wrap_future(job)
            self._running.add(future)
            future.add_done_callback(self._running.discard)
            return slot, future

    async def _result(self, future: asyncio.Future[Any], timeout_s: float) -> Any:
        try:
            async with asyncio.timeout(timeout_s + _BIRTH_ALLOWANCE_S):
                # Shielded, because cancelling the future itself kills the worker at once.
                return await asyncio.shield(future)
        except TimeoutError as error:
            raise DeadlineExceeded from error
        except (ProcessExpired, MemoryError) as error:
            _log.warning("a worker died of a page: %s", type(error).__name__)
            raise (PageFailed if isinstance(error, MemoryError) else WorkerDied) from error
        except asyncio.CancelledError:
            if self._closed and not _caller_is_cancelled():
                raise Unavailable("The service is shutting down.") from None
            raise

    async def _let_finish(self, slot: ProcessPool, future: asyncio.Future[Any]) -> None:
        """Nobody waits for this task any more: keep its worker if it ends soon."""
        await asyncio.wait((future,), timeout=_CANCEL_GRACE_S)
        if future.done() and not future.cancelled() and future.exception() is None:
            self._put_back(slot)
        else:
            future.cancel()
            self._replace(slot)

    def _new_slot(self) -> ProcessPool:
        slot = ProcessPool(
            max_workers=1,
            max_tasks=self._max_tasks_per_worker,
            initializer=_be_born,
            initargs=self._birth_args,
            context=multiprocessing.get_context("spawn"),
        )
        self._slots.add(slot)
        _is_alive(slot)
        return slot

    def _put_back(self, slot: ProcessPool) -> None:
        if not self._closed:
            self._idle.put_nowait(slot)

    def _replace(self, slot: ProcessPool) -> None:
        if not self._closed:
            self._retire(slot)
            self._idle.put_nowait(self._new_slot())

    def _retire(self, slot: ProcessPool) -> None:
        """Kill the slot's process; waiting for its threads would block the event loop."""
        self._slots.discard(slot)
        self._in_background(asyncio.to_thread(_stop, slot))

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)


def _is_alive(slot: ProcessPool) -> bool:
    """Whether the slot takes tasks; asking a new one starts its process."""
    try:
        return slot.active
    except BrokenProcessPool:  # no process can be started now; the next page tries again
        return False


def _stop(slot: ProcessPool) -> None:
    slot.stop()  # type: ignore[no-untyped-call]
    slot.join()


def _caller_is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _be_born(nice: int, max_memory_bytes: int | None, birth: bytes | None) -> None:
    initialise(nice, max_memory_bytes)
    sandbox.hide(
        sandbox.CREDENTIALS
    )  # before libraries start threads, which would keep their rights
    if birth is not None:
        setup, setup_args = pickle.loads(birth)  # noqa: S301 - our own
        setup(*setup_args)


def _call(function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, OcrError | None]:
    """In the worker: (value, None) or (None, error), with errors that surely pickle."""
    try:
        return function(*args), None
    except MemoryError:
        raise  # the worker's heap is not worth keeping: let the pool replace it
    except OcrError as error:
        return None, error
    except Exception as error:  # noqa: BLE001 - the process is the boundary here
        # Frames only: a message may quote the page, and a foreign class may not unpickle.
        failure = PageFailed(f"The worker met a {type(error).__name__}.")
        failure.add_note("".join(traceback.format_tb(error.__traceback__)))
        return None, failure
