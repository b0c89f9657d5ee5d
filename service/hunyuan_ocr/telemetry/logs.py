"""Logs: a JSON object a line on standard error, never an image, a text or a key."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
import traceback
from types import TracebackType
from typing import Any

LOGGER = "hunyuan_ocr"
# Libraries that put pieces of a request's body into their messages.
_QUOTING = ("python_multipart.multipart", "PIL.TiffImagePlugin")


def _frames(trace: TracebackType | None) -> list[str]:
    """Where it happened, without the exception's message: that may quote a caller's bytes."""
    return [f"{f.filename}:{f.lineno} {f.name}" for f in traceback.extract_tb(trace)]


class JsonFormatter(logging.Formatter):
    """Formats a record; whatever was passed as `extra={"fields": {...}}` stands beside."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update(getattr(record, "fields", {}))
        if record.exc_info and record.exc_info[0] is not None:
            line["exception"] = record.exc_info[0].__qualname__
            line["frames"] = _frames(record.exc_info[2])
        return json.dumps(line, ensure_ascii=False)


def report_loop_error(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """An event loop's exception handler; its own shows tasks and callbacks with their words."""
    logging.getLogger(LOGGER).error(
        "an error that nobody waited for", exc_info=context.get("exception")
    )


def configure_logging(level: str) -> None:
    """Send our log lines, and the server's, to standard error as JSON. For a process of ours."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    for name in (LOGGER, "uvicorn"):
        logging.getLogger(name).setLevel(level.upper())
    for name in _QUOTING:
        logging.getLogger(name).disabled = True
