"""How many series hostile callers add to the metrics.

    make figure NAME=series

Requests with invented paths, methods, classes, keys and headers, through the whole application in
this process, after one of each that the service answers differently. `added` is to be 0.
"""

from __future__ import annotations

import asyncio
import json
import logging
import tempfile
from pathlib import Path

from tests.unit.test_series import attacked

REQUESTS = 100_000


def main() -> None:
    logging.disable()
    with tempfile.TemporaryDirectory() as folder:
        before, after = asyncio.run(attacked(Path(folder), REQUESTS))
    print(json.dumps({"requests": REQUESTS, "series": after, "added": after - before}))


if __name__ == "__main__":
    main()
