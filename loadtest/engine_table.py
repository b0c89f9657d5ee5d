"""What became of each engine of a sweep, as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import fmean

from loadtest.engines import Outing
from loadtest.step import Latency, Step

COLUMNS = (
    "max-num-seqs", "utilization", "chunked", "pixels", "runs", "started", "out of memory",
    "answers/s", "first p50 ms", "p50 ms", "p95 ms", "answered", "peak GB", "GPU busy",
)  # fmt: skip


def rows(outings: Sequence[Outing]) -> Iterator[list[str]]:
    """A line for each cell: the mean over its runs, of memory the highest; "" for the unknown."""
    for cell in dict.fromkeys(outing.cell for outing in outings):
        runs = [outing for outing in outings if outing.cell == cell]
        steps = [outing.step for outing in runs if outing.step]
        due = sum(step.counts.due for step in steps)
        answered = sum(step.counts.answered for step in steps)
        yield [
            str(cell.max_num_seqs),
            f"{cell.gpu_memory_utilization:g}",
            cell.chunked_prefill,
            str(cell.max_pixels),
            str(len(runs)),
            str(len(steps)),
            f"{sum(outing.out_of_memory for outing in runs) / len(runs):.0%}",
            _told(fmean, (step.answered_per_s for step in steps), "{:.3g}"),
            _milliseconds([step.first for step in steps], lambda latency: latency.p50_s),
            _milliseconds([step.latency for step in steps], lambda latency: latency.p50_s),
            _milliseconds([step.latency for step in steps], lambda latency: latency.p95_s),
            f"{answered / due:.1%}" if due else "",
            _told(max, _sensor(steps, "memory_used_gb"), "{:.1f}"),
            _told(fmean, _sensor(steps, "utilization"), "{:.0%}"),
        ]


def markdown(outings: Sequence[Outing]) -> str:
    """Aligned, to be read as it is too."""
    lines = [list(COLUMNS), *rows(outings)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, ["-" * width for width in widths])
    padded = [map(str.ljust, cells, widths) for cells in lines]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in padded)


def _told(sum_up: Callable[[list[float]], float], values: Iterable[float], form: str) -> str:
    found = list(values)
    return form.format(sum_up(found)) if found else ""


def _milliseconds(steps: Sequence[Latency | None], value: Callable[[Latency], float]) -> str:
    return _told(fmean, (value(latency) * 1e3 for latency in steps if latency), "{:.0f}")


def _sensor(steps: Sequence[Step], name: str) -> list[float]:
    return [step.gpu[name] for step in steps if name in step.gpu]
