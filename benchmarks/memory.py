"""Memory and the event loop's lag of a real server over many mixed documents.

    make figure NAME=memory
    python -m benchmarks.memory [--documents N] [--large N]

`mb_per_100_documents` is the Theil-Sen slope of the main process's resident memory over the
documents behind the first fifth, which fills pools and caches. `loop_lag_p99_ms` is taken from
the service's own histogram while pages of 50 megapixels are decoded, linear within a bucket.
`workers_peak_mb` is the largest resident memory of any worker, whose address space is capped.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import re
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
from PIL import Image

from benchmarks.processes import descendants
from tests.api.server import Server, running_server
from tests.files import encoded, tiff_pages
from tests.paper import FIXTURES
from tests.pictures import picture

LAG = "hunyuan_ocr_event_loop_lag_seconds_bucket"
LARGE = (8000, 6250)
SMALL = (320, 96)
SETTINGS: dict[str, Any] = {
    "decode_workers": 2,
    "embedded_workers": 2,
    "log_level": "warning",
    "decode_worker_memory_megabytes": 2048,
}


def page(rng: random.Random) -> Image.Image:
    """A small page: with a line of text, on its head, or blank."""
    image, _ = picture([f"No {rng.randrange(10**6):06d}"], size=SMALL)
    kind = rng.random()
    if kind < 0.1:
        return Image.new("RGB", SMALL, "white")
    return image.transpose(Image.Transpose.ROTATE_180) if kind < 0.2 else image


def documents(rng: random.Random) -> Iterator[bytes]:
    """Every format in turn, some of them cut short."""
    one: list[Callable[[], bytes]] = [
        *(lambda name=name: encoded(page(rng), name) for name in
          ("JPEG", "PNG", "WEBP", "BMP", "GIF", "AVIF", "TIFF", "JPEG2000", "PDF")),
        lambda: tiff_pages([page(rng), page(rng)]),
        lambda: encoded(page(rng), "PDF", save_all=True, append_images=[page(rng)]),
        (FIXTURES / "heic" / "lines.heic").read_bytes,
        lambda: encoded(page(rng), "PNG")[:600],
    ]  # fmt: skip
    for make in itertools.cycle(one):
        yield make()


def theil_sen(points: list[tuple[float, float]]) -> float:
    """The median of the slopes between all pairs of points."""
    pairs = itertools.combinations(points, 2)
    return statistics.median((b[1] - a[1]) / (b[0] - a[0]) for a, b in pairs)


def post(client: httpx.Client, data: bytes) -> int:
    headers = {"Content-Type": "application/octet-stream"}
    params = {"timeout_s": "120"}
    return client.post("/v1/ocr", content=data, headers=headers, params=params).status_code


def memory(server: Server, client: httpx.Client, count: int) -> dict[str, float]:
    points, peak, statuses = [], 0.0, dict[int, int]()
    for number, data in enumerate(itertools.islice(documents(random.Random(1)), count)):
        status = post(client, data)
        statuses[status] = statuses.get(status, 0) + 1
        if number % 5 == 0:
            points.append((float(number), server.rss_megabytes()))
            peak = max(peak, *map(peak_megabytes, descendants(server.pid)))
        if number % 50 == 0:
            print(f"{number}: {points[-1][1]:.1f} MB", file=sys.stderr, flush=True)
    behind_warm_up = points[len(points) // 5 :]
    return {
        "mb_per_100_documents": round(100 * theil_sen(behind_warm_up), 3),
        "main_mb": points[-1][1],
        "workers_peak_mb": peak,
        "documents": count,
        **{f"status_{status}": total for status, total in sorted(statuses.items())},
    }


def peak_megabytes(pid: int) -> float:
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    found = re.search(r"VmHWM:\s+(\d+) kB", text)
    return int(found[1]) / 1e3 if found else 0.0


def lags(server: Server) -> dict[float, float]:
    """Timers seen so far by the bound of their lag in seconds, cumulative."""
    text = httpx.get(f"{server.management_url}/metrics").text
    found = re.findall(rf'^{LAG}{{le="([^"]+)"}} (\S+)', text, re.MULTILINE)
    return {float(bound): float(count) for bound, count in found}


def loop_lag(server: Server, client: httpx.Client, count: int) -> dict[str, float]:
    noise = Image.effect_noise((1000, 800), 40).convert("RGB").resize(LARGE)
    data = encoded(noise, "JPEG", quality=80)
    post(client, data)  # warm
    before = lags(server)
    for _ in range(count):
        post(client, data)
    seen = {bound: total - before[bound] for bound, total in lags(server).items()}
    timers = seen[float("inf")]
    p99 = quantile(0.99, seen)
    return {"loop_lag_p99_ms": round(1000 * p99, 1), "timers": timers, "large_documents": count}


def quantile(share: float, cumulative: dict[float, float]) -> float:
    """Of a histogram, linear within its buckets, as Prometheus's `histogram_quantile`."""
    wanted, low, below = share * cumulative[float("inf")], 0.0, 0.0
    for bound, total in sorted(cumulative.items()):
        if total >= wanted:
            inside = (wanted - below) / max(1.0, total - below)
            return low + (bound - low) * inside if bound < float("inf") else bound
        low, below = bound, total
    return low


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--documents", type=int, default=1000)
    parser.add_argument("--large", type=int, default=20, help="documents of 50 megapixels")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        running_server(Path(folder), **SETTINGS) as server,
        server.client() as client,
    ):
        figure = memory(server, client, options.documents)
        figure |= loop_lag(server, client, options.large)
    print(json.dumps(figure))


if __name__ == "__main__":
    main()
