"""The service's own calibration at start, against the simulated engine."""

from __future__ import annotations

from functools import cache
from itertools import cycle

from benchmarks.simulator.engine import Engine
from benchmarks.simulator.events import Timeline
from benchmarks.simulator.parameters import EngineParameters
from benchmarks.simulator.workload import KINDS, PageKind
from hunyuan_ocr.traffic.calibration import PRIOR, calibrated
from hunyuan_ocr.traffic.cost import Sample, Speed

_OUTPUTS = (16, 64, 192)
_TOGETHER = 15


@cache
def calibrated_speed(parameters: EngineParameters) -> Speed:
    """Some pages alone, then each beside fifteen others, three times."""
    pages = [(kind, output) for kind in KINDS for output in _OUTPUTS]
    samples = [_sample(parameters, kind, output, 0, 0.0) for kind, output in pages]
    samples += [
        _sample(parameters, kind, output, _TOGETHER, later_s)
        for kind, output in pages
        for later_s in (0.0, 0.3, 0.7)
    ]
    return calibrated(PRIOR, samples)


def _sample(
    parameters: EngineParameters, kind: PageKind, output: int, others: int, later_s: float
) -> Sample:
    timeline = Timeline()
    engine = Engine(timeline, parameters)
    ended: list[float] = []
    work = kind.work(output)

    kinds = cycle(_OTHERS)

    def again() -> None:
        """The others, of all kinds, keep coming as long as the page is there."""
        if not ended:
            other = next(kinds)
            engine.submit(other.work(other.output_median), other.megapixels, again)

    for number in range(others):
        timeline.at(number * 0.05, again)

    def measure() -> None:
        engine.submit(work, kind.megapixels, lambda: ended.append(timeline.now))

    begin = others * 0.05 + 1.0 + later_s
    timeline.at(begin, measure)
    timeline.run(begin + 120.0)
    return Sample(work, float(others), ended[0] - begin)


# As often as they come.
_OTHERS = [kind for kind in KINDS for _ in range(round(10 * kind.weight))]
