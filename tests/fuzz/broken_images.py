"""Sends the test files of image and PDF libraries, whole and cut in half, through the service.

    python -m tests.fuzz.broken_images [--files N] [--cache FOLDER]

The files come from the libraries' source packages, fetched once by pip into a folder outside
the checkout. Many are broken on purpose: they were reported as crashes. No answer may be a 500,
and the server must read a sound page at the end. The last line is one JSON object: answers by
status, and by code for refusals.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx

from tests.api.server import Server, running_server
from tests.files import cut
from tests.pictures import LINES, png_bytes

PACKAGES = (
    "pillow==13.0.0",
    "pillow-heif==1.8.1",
    "pikepdf==10.18.0",
    "pypdf==7.1.1",
    "pypdfium2==5.15.2",
)
SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".mpo", ".png", ".apng", ".gif", ".bmp", ".dib", ".tif", ".tiff", ".webp"}
    | {".avif", ".heic", ".heif", ".hif", ".jp2", ".j2k", ".jpc", ".pdf", ".ico", ".cur", ".psd"}
    | {".ppm", ".tga", ".svg", ".fli", ".icns", ".eps", ".pcx", ".sgi", ".crash"}
)
FILE_BYTES_MAX = 20_000_000
AT_ONCE = 4
ENGINE_MEGAPIXELS = 0.1  # what the pages say is of no interest here, and reading them takes long
PAGE_TIMEOUT_S = 120


def fetched(cache: Path) -> list[Path]:
    """The source packages, downloaded where they are not there yet."""
    cache.mkdir(parents=True, exist_ok=True)
    for package in PACKAGES:
        name = package.replace("==", "-").replace("-heif", "_heif") + ".tar.gz"
        if not (cache / name).exists():
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
            subprocess.run([*pip, "--no-binary", ":all:", "--dest", cache, package], check=True)
    return sorted(cache.glob("*.tar.gz"))


def samples(packages: list[Path]) -> Iterator[tuple[str, bytes]]:
    """(name, bytes) of every image and document in the packages."""
    for package in packages:
        with tarfile.open(package) as archive:
            for member in archive:
                if not member.isfile() or member.size > FILE_BYTES_MAX:
                    continue
                if Path(member.name).suffix.lower() in SUFFIXES or "crash" in member.name:
                    file = archive.extractfile(member)
                    if file is not None and (data := file.read()):
                        yield member.name, data
                        yield f"{member.name} (half)", cut(data, 0.5)


async def send_all(server: Server, files: Iterator[tuple[str, bytes]]) -> Counter[str]:
    """Answers by status and code; prints those that are 500, and the pages that failed so."""
    counts: Counter[str] = Counter()

    async def sender(client: httpx.AsyncClient) -> None:
        for name, data in files:
            answer = await client.post(
                "/v1/ocr",
                params={"pages": "1", "timeout_s": str(PAGE_TIMEOUT_S)},
                content=data,
                headers={"Content-Type": "application/octet-stream"},
            )
            outcome = outcome_of(answer)
            counts[outcome] += 1
            if outcome.startswith("5"):
                print(f"{outcome}: {name}")

    async with httpx.AsyncClient(base_url=server.url, timeout=PAGE_TIMEOUT_S + 60) as client:
        await asyncio.gather(*(sender(client) for _ in range(AT_ONCE)))
    return counts


def outcome_of(answer: httpx.Response) -> str:
    body = answer.json()
    if answer.status_code != 200:
        return f"{answer.status_code} {body['code']}"
    problem = body["pages"][0]["problem"]
    return f"{problem['status']} {problem['code']}" if problem else "200"


def main() -> int:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hunyuan-ocr"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--files", type=int, help="stop after so many; unset: all")
    parser.add_argument("--cache", type=Path, default=cache / "broken-images")
    options = parser.parse_args()
    files = samples(fetched(options.cache))
    if options.files is not None:
        files = (file for file, _ in zip(files, range(options.files), strict=False))
    with (
        tempfile.TemporaryDirectory() as folder,
        running_server(
            Path(folder),
            embedded_max_megapixels=ENGINE_MEGAPIXELS,
            decode_timeout_s=PAGE_TIMEOUT_S,
        ) as server,
    ):
        counts = asyncio.run(send_all(server, files))
        alive = httpx.get(f"{server.management_url}/livez").status_code == 200
        sound = server.client().post("/ocr", files={"file": ("page", png_bytes())}).json()
        peak_megabytes = round(server.peak_rss_megabytes())
    failed = sum(count for outcome, count in counts.items() if outcome.startswith("500"))
    reads = alive and sound == {"text": "\n".join(LINES)}
    print(
        json.dumps(
            {
                "answers": dict(sorted(counts.items())),
                "failed": failed,
                "reads_afterwards": reads,
                "server_peak_megabytes": peak_megabytes,
            }
        )
    )
    return 0 if reads and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
