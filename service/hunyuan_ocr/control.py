"""Speaks to a running service over its control socket.

Only the standard library: what kubelet runs while a pod ends must start in a moment.
"""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Callable
from pathlib import Path

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


def drain(path: Path, timeout_s: float | None, report: Callable[[str], None]) -> None:
    """Drain the service at `path`; `report` gets a line whenever what is waited for changes.

    Raises ControlError. A drain that was waited for too long goes on.
    """
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    connection = _Connection(path)
    try:
        connection.request("POST", "/drain")
        answer = connection.getresponse()
        if answer.status != http.client.OK:
            raise ControlError(f"{path} answered {answer.status}: is it another program's?")
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
    except (FileNotFoundError, ConnectionRefusedError):
        raise ControlError(
            f"nothing listens at {path}: does `hunyuan-ocr serve` run, with "
            f"HYOCR_CONTROL_SOCKET={path}?"
        ) from None
    except (OSError, http.client.HTTPException) as error:
        raise ControlError(f"the service broke off: {error or type(error).__name__}") from error
    finally:
        connection.close()
    raise ControlError("the service ended before it was drained; its log says why")


def _in_words(state: dict[str, object]) -> str:
    admits = "unready, still admitting" if state["phase"] == "propagating" else "refusing new pages"
    return f"{admits}; in flight: {state['requests']} requests, {state['pages']} pages"
