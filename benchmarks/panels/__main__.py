"""Every panel of every board over a real Prometheus: which of them show nothing.

    make figure NAME=panels
    python -m benchmarks.panels --alerts

Real vLLM on the CPU, the service before it, the GPU probe on a library in place of NVML's; the
exporters of DCGM and Kubernetes are played from the lists of what they emit, and so is the day of
last week that a panel compares with. Under callers of every kind the card grows hot and the breaker
is opened by hand. `--alerts` goes on until the alerts for a saturated queue, a hung engine and an
open breaker have fired, and says when: ten minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.panels.load import flooded, mixed
from benchmarks.panels.picture import Series, draw
from benchmarks.panels.prometheus import POD, Prometheus, prometheus
from benchmarks.panels.recorded import exporters
from hunyuan_ocr.gpu import probe
from tests.api.server import Server
from tests.dashboards.boards import boards, panels
from tests.engine.conftest import Engine, running
from tests.engine.sidecar import sidecar
from tests.gpu.fake_card import Card, compiled

LOAD_S = 100.0
BATCH_CALLERS = 120
_HOT = {"temperature": 83, "margin": 1, "reasons": 0x20, "sm_clock": 900}
_ALERTS = {
    "HunyuanOcrQueueSaturated", "HunyuanOcrEngineHung", "HunyuanOcrBreakerOpen",
    "HunyuanOcrNoReadyReplica",
}  # fmt: skip
_ALERTS_WITHIN_S = 900.0


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextmanager
def probed(folder: Path) -> Iterator[tuple[Card, Path]]:
    """The probe at work; yields the card that it sees and the file that it writes."""
    library, file, script = compiled(folder), folder / "gpu.json", folder / "card"
    card = Card(script)
    card()
    words = (sys.executable, "-I", probe.__file__, "--library", library, "--file", str(file))
    with subprocess.Popen(words, env=os.environ | {"FAKE_NVML": str(script)}) as process:
        try:
            yield card, file
        finally:
            process.terminate()


def breaker(folder: Path, *words: str) -> None:
    program = Path(sys.executable).parent / "hunyuan-ocr"
    command = (str(program), "breaker", *words, "--socket", str(folder / "control"))
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


async def happen(service: Server, card: Card, folder: Path) -> None:
    """A calm, then heat, then a breaker that is opened and closed by hand."""
    flood = asyncio.create_task(flooded(service.url, "batch", BATCH_CALLERS))
    await mixed(service.url, LOAD_S / 2)
    say("the card grows hot, the breaker opens")
    card(**_HOT, throttled_software_thermal=9_000_000_000)
    await asyncio.to_thread(breaker, folder, "open", "--why", "a figure is taken")
    await mixed(service.url, LOAD_S / 5)
    await asyncio.to_thread(breaker, folder, "close")
    await mixed(service.url, LOAD_S / 3)
    flood.cancel()
    with suppress(asyncio.CancelledError):
        await flood


def chosen(query: str) -> str:
    """A board's query with its variables set."""
    values = {"$__rate_interval": "1m", "$__range": "5m", "$instance": ".*"}
    values |= {f"${name}": POD[name] for name in ("namespace", "job", "pod")}
    for variable, value in values.items():
        query = query.replace(variable, value)
    return query


def without_data(database: Prometheus) -> tuple[int, list[str]]:
    """How many panels there are, and those of which a query has no series that is a number."""
    count, empty = 0, []
    for name, board in boards().items():
        for panel in panels(board):
            count += 1
            for target in panel["targets"]:
                query = chosen(target["expr"])
                series = database.query(query)
                if not any(sample["value"][1] != "NaN" for sample in series):
                    empty.append(f"{name}: {panel['title']}: {query}")
    return count, empty


async def fired(
    service: Server, engine: Engine, folder: Path, database: Prometheus
) -> dict[str, float]:
    """Seconds until each alert fired, of faults that are made for them one after the other."""
    began = time.monotonic()
    seen: dict[str, float] = {}

    async def until(names: set[str]) -> None:
        while not names <= seen.keys():
            for name in database.firing() - seen.keys():
                seen[name] = round(time.monotonic() - began)
                say(f"{name} fires after {seen[name]} s")
            if time.monotonic() - began > _ALERTS_WITHIN_S:
                raise SystemExit(f"no alert {names - seen.keys()}")
            await asyncio.sleep(2)

    flood = asyncio.create_task(flooded(service.url, "batch", BATCH_CALLERS))
    await until({"HunyuanOcrQueueSaturated"})
    core = engine_core(engine)
    os.kill(core, signal.SIGSTOP)
    try:
        await asyncio.to_thread(breaker, folder, "open", "--why", "an alert is tried")
        await until(_ALERTS)
    finally:
        os.kill(core, signal.SIGCONT)
    flood.cancel()
    with suppress(asyncio.CancelledError):
        await flood
    return seen


def engine_core(engine: Engine) -> int:
    """The process of vLLM that computes."""
    port = str(urlsplit(engine.url).port)
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if "VLLM::EngineCore" not in (folder / "cmdline").read_text():
                continue
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            if port in Path(f"/proc/{parent}/cmdline").read_text().split("\0"):
                return int(folder.name)
    raise SystemExit("vLLM has no process of its own for its core")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--alerts", action="store_true", help="make alerts fire, too")
    parser.add_argument("--pictures", type=Path, help="a folder for pictures of the boards")
    given = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        engine = stack.enter_context(running("0.32.0", 8132))
        card, file = stack.enter_context(probed(folder))
        settings = {
            "gpu_file": file,
            "control_socket": folder / "control",
            "batch_max_queue_s": 4,  # 40 pages, of a third of its callers
            "quota_requests_per_s": 1000,
        }
        service = stack.enter_context(sidecar(folder, engine.url, **settings))
        others = f"127.0.0.1:{stack.enter_context(exporters())}"
        address = urlsplit(service.management_url).netloc
        database = stack.enter_context(prometheus(folder, address, others))
        say("callers of every kind")
        asyncio.run(happen(service, card, folder))
        count, empty = without_data(database)
        say("\n".join(empty))
        broken = [rule["name"] for rule in database.rules() if rule["health"] == "err"]
        figure: dict[str, object] = {
            "panels": count, "without_data": len({e.rpartition(": ")[0] for e in empty}),
            "rules": len(database.rules()), "broken_rules": broken,
        }  # fmt: skip
        if given.pictures:
            given.pictures.mkdir(parents=True, exist_ok=True)
            end = time.time()

            def ask(query: str) -> Sequence[Series]:
                return database.query_range(chosen(query), end - LOAD_S, end)

            for name, board in boards().items():
                draw(board, ask, given.pictures / f"{name}.png")
        if given.alerts:
            card()
            figure["alerts_after_s"] = asyncio.run(fired(service, engine, folder, database))
    print(json.dumps(figure))


if __name__ == "__main__":
    main()
