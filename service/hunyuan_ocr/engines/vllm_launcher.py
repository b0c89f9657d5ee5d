"""What an orchestrator runs in vLLM's own container, beside vLLM.

    python3 launcher.py serve -- vllm serve …    run vLLM, with this folder's plugin and probe
    python3 launcher.py hold                     preStop: stay until the service has drained
    python3 launcher.py livez                    liveness: does the service say that vLLM is dead?

The probe (probe.py, where it lies beside this file) writes down what the GPU's sensors say, and
runs as long as vLLM does. HYOCR_GPU_PROBE=none leaves it out.

Runs on that container's Python, so it is one file of the standard library.
"""

from __future__ import annotations

import argparse
import http.client
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

MARKERS = "/markers"
MANAGEMENT_URL = "http://127.0.0.1:9180"
# The service's own preStop begins at the same time; a container that is restarted alone has none.
DRAIN_BEGINS_WITHIN_S = 3.0
PROBE = "probe.py"
# Doubled each time that a probe lives no longer than the longest pause.
PROBE_PAUSE_S = 1.0
LONGEST_PROBE_PAUSE_S = 60.0
POLL_PERIOD_S = 0.1
# Well within the time that a probe is given, since one that takes longer counts as failed.
ANSWER_WITHIN_S = 2.0


def serve(command: list[str]) -> int:
    """Run `command` as this process's one child, pass signals on, and end as it ended.

    Not in place of this process, which is the container's first: the kernel drops the signals
    that such a process does not handle yet, and vLLM imports for a long time before it does.
    """
    folder = str(Path(__file__).resolve().parent)
    inherited = os.environ.get("PYTHONPATH")
    path = os.pathsep.join(filter(None, (folder, inherited)))
    try:
        child = os.posix_spawnp(command[0], command, os.environ | {"PYTHONPATH": path})
    except OSError as error:
        _say(f"cannot run {command[0]}: {error.strerror}")
        return 127
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
        signal.signal(signum, lambda signum, _: os.kill(child, signum))
    probe = Probe(Path(folder, PROBE))
    while True:
        ended, status = os.wait()  # orphans are the first process's to bury, too
        if ended == child:
            probe.stop()
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
        probe.ended(ended)


class Probe:
    """The GPU probe beside vLLM: what becomes of it is nothing to vLLM."""

    def __init__(self, file: Path) -> None:
        self._command = [sys.executable, "-I", str(file)]
        self._pid: int | None = None
        self._pause_s = PROBE_PAUSE_S
        if file.exists() and os.environ.get("HYOCR_GPU_PROBE") != "none":
            # A timer's signal interrupts os.wait, which then goes on: no second thread waits.
            signal.signal(signal.SIGALRM, lambda *_: self._start())
            self._start()

    def _start(self) -> None:
        self._began_s = time.monotonic()
        try:
            self._pid = os.posix_spawn(self._command[0], self._command, os.environ)
        except OSError as error:
            _say(f"cannot run the GPU probe: {error.strerror}")
            self._pause()

    def _pause(self) -> None:
        if time.monotonic() - self._began_s > LONGEST_PROBE_PAUSE_S:
            self._pause_s = PROBE_PAUSE_S
        signal.setitimer(signal.ITIMER_REAL, self._pause_s)
        self._pause_s = min(2 * self._pause_s, LONGEST_PROBE_PAUSE_S)

    def ended(self, pid: int) -> None:
        """Some child has ended: if it is the probe, it is started anew after a pause."""
        if pid == self._pid:
            self._pid = None
            _say(f"the GPU probe ended; it is started again in {self._pause_s:.0f} s")
            self._pause()

    def stop(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        if self._pid is not None:
            os.kill(self._pid, signal.SIGTERM)


def hold(
    markers: Path,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Return when the service needs this engine no more.

    That is at once when `drained` is there, and when no drain begins, or none goes on: a service
    that was restarted has no requests left.
    """
    draining, drained = markers / "draining", markers / "drained"
    began_by = clock() + DRAIN_BEGINS_WITHIN_S
    while not draining.exists():
        if clock() >= began_by:
            return 0
        sleep(POLL_PERIOD_S)
    while draining.exists() and not drained.exists():
        sleep(POLL_PERIOD_S)
    return 0


def livez(management_url: str) -> int:
    """1 only where the service says so: one that is down or slow must not end a working engine."""
    url = urlsplit(management_url)
    connection = http.client.HTTPConnection(url.netloc, timeout=ANSWER_WITHIN_S)
    try:
        connection.request("GET", "/engine/livez")
        answer = connection.getresponse()
        text = answer.read().decode("utf-8", "replace")
    except (OSError, http.client.HTTPException) as error:
        _say(f"the service was not reached: {error}")
        return 0
    finally:
        connection.close()
    _say(f"{answer.status} {text}")
    return int(answer.status == http.client.SERVICE_UNAVAILABLE)


def _say(text: str) -> None:
    sys.stderr.write(f"launcher: {text}\n")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="launcher.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("serve", help="run the command that follows after --")
    hold_ = commands.add_parser("hold", help="wait for the service's drain, if there is one")
    hold_.add_argument(
        "--markers", type=Path, default=os.environ.get("HYOCR_MARKERS_DIRECTORY", MARKERS)
    )
    livez_ = commands.add_parser("livez", help="exit 1 where the service says vLLM is dead")
    livez_.add_argument(
        "--management-url", default=os.environ.get("HYOCR_MANAGEMENT_URL", MANAGEMENT_URL)
    )
    # By hand: releases of argparse differ in how they treat the command's own options.
    own_end = arguments.index("--") if "--" in arguments else len(arguments)
    options, command = parser.parse_args(arguments[:own_end]), arguments[own_end + 1 :]
    if (options.command == "serve") != bool(command):
        parser.error("a command after -- belongs to `serve`, and only there")
    if options.command == "serve":
        return serve(command)
    if options.command == "hold":
        return hold(options.markers)
    return livez(options.management_url)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
