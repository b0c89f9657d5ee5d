"""Speaks to a running service over its control socket.

Only the standard library: what kubelet runs while a pod ends must start in a moment.
"""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

# The service writes a line a second.
_SILENCE_MAX_S = 10.0


class ControlError(Exception):
    """The service was not reached or did not drain; the message says what to do."""


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=_SILENCE_MAX_S)
        self._path = str(path)

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


@contextmanager
def _asking(path: Path, method: str, target: str) -> Iterator[http.client.HTTPResponse]:
    """The service's answer. Raises ControlError, also for what breaks off inside."""
    connection = _Connection(path)
    try:
        connection.request(method, target)
        answer = connection.getresponse()
        if answer.status != http.client.OK:
            raise ControlError(f"{path} answered {answer.status}: is it another program's?")
        yield answer
    except (FileNotFoundError, ConnectionRefusedError):
        raise ControlError(
            f"nothing listens at {path}: does `hunyuan-ocr serve` run, with "
            f"HYOCR_CONTROL_SOCKET={path}?"
        ) from None
    except (OSError, http.client.HTTPException) as error:
        raise ControlError(f"the service broke off: {error or type(error).__name__}") from error
    finally:
        connection.close()


def drain(path: Path, timeout_s: float | None, report: Callable[[str], None]) -> None:
    """Drain the service at `path`; `report` gets a line whenever what is waited for changes.

    Raises ControlError. A drain that was waited for too long goes on.
    """
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    with _asking(path, "POST", "/drain") as answer:
        told = ""
        for line in iter(answer.readline, b""):
            state = json.loads(line)
            if state["phase"] == "drained":
                report("drained")
                return
            waits_for = _in_words(state)
            if waits_for != told:
                report(waits_for)
                told = waits_for
            if deadline is not None and time.monotonic() >= deadline:
                raise ControlError(f"not drained within {timeout_s:g} s; the drain goes on")
    raise ControlError("the service ended before it was drained; its log says why")


def breaker(path: Path, action: str, why: str = "") -> dict[str, Any]:
    """Open or close the breaker of the service at `path`, or only ask; answers how it is then.

    As `api/control.py` shows it. Raises ControlError.
    """
    method, target = ("GET", "/breaker") if action == "status" else ("POST", f"/breaker/{action}")
    with _asking(path, method, f"{target}?{urlencode({'why': why})}") as answer:
        state: dict[str, Any] = json.loads(answer.read())
        return state


def _in_words(state: dict[str, object]) -> str:
    admits = "unready, still admitting" if state["phase"] == "propagating" else "refusing new pages"
    return f"{admits}; in flight: {state['requests']} requests, {state['pages']} pages"


def breaker_in_words(state: dict[str, Any]) -> str:
    reason = f" ({state['reason']})" if state["reason"] else ""
    words = [f"{state['state'].replace('_', '-')}{reason}"]
    if state["why"]:
        words.append(state["why"])
    if state["limit_factor"] < 1:
        words.append(f"heat leaves {state['limit_factor']:.0%} of the limit")
    if state["gpu_stale"]:
        words.append("the GPU's sensors are silent")
    return "; ".join(words)
