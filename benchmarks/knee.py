"""Does the load-test kit find the knee that was built into a server, and none where there is none?

    make figure NAME=knee

In virtual time: the kit's own generator, search and analysis against servers whose law is drawn by
seed, with a knee (`p95_error` and `median_error`, relative; `missed`; `slo_off`: sweeps in which
the promise's boundary lies more than one measured level from the true one) and without
(`false_knees`). Then over HTTP in real time, with short steps and one repeat each: `http_errors` of
the first few with a knee, and `http_false_knees`. Last line: one JSON object. Six minutes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from statistics import median

from rich.console import Console
from rich.progress import track

from benchmarks.knee_cases import (
    Case,
    Found,
    http_case,
    over_http,
    simulated,
    with_knee,
    without_knee,
)
from loadtest.intervals import quantile

SEEDS = 50
HTTP_KNEES = (4.0, 6.0, 9.0)


def _all(kind: str, cases: list[Case]) -> list[Found]:
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        done = pool.map(simulated, cases)
        return list(track(done, kind, total=len(cases), console=Console(stderr=True)))


def _show(found: list[Found], wrong: Callable[[Found], bool]) -> None:
    for one in filter(wrong, found):
        print(one)


def main() -> None:
    knees = _all("with a knee", [with_knee(seed) for seed in range(SEEDS)])
    _show(knees, lambda one: one.error > 0.1 or one.slo_steps > 1)
    none = _all("without", [without_knee(seed) for seed in range(SEEDS)])
    _show(none, lambda one: one.knee is not None)
    http = [over_http(http_case(n, knee=knee)) for n, knee in enumerate(HTTP_KNEES)]
    flat = over_http(http_case(len(HTTP_KNEES), growth=0.6))
    errors = sorted(one.error for one in knees)
    result = {
        "p95_error": round(quantile(errors, 0.95), 3),
        "median_error": round(median(errors), 3),
        "seeds": SEEDS,
        "missed": sum(one.knee is None for one in knees),
        "outside_interval": sum(not one.low <= one.built_in <= one.high for one in knees),
        "slo_off": sum(one.slo_steps > 1 for one in knees),
        "false_knees": sum(one.knee is not None for one in none),
        "http_errors": [round(one.error, 3) for one in http],
        "http_false_knees": int(flat.knee is not None),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
