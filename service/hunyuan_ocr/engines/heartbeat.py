"""Is the engine alive and getting on? Judged from scrapes of its metrics, without I/O."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

_SAMPLE = re.compile(
    r"^(vllm:iteration_tokens_total_count|vllm:num_requests_running|vllm:num_requests_waiting"
    r"|vllm:num_preemptions_total"
    r"|process_start_time_seconds)(?:\{[^}]*\})? (\S+)$",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class EngineSample:
    """One scrape: steps and preemptions since start, requests in the engine, and which process."""

    iterations: float
    requests: float
    process_start_s: float
    preemptions: float = 0.0


def read_sample(metrics_text: str) -> EngineSample:
    """Read a scrape of vLLM's /metrics; several engines in one process add up.

    Raises ValueError where a name is missing: without it neither a restart nor a hang would show.
    """
    totals: dict[str, float] = {}
    for name, value in _SAMPLE.findall(metrics_text):
        totals[name] = totals.get(name, 0.0) + float(value)
    try:
        return EngineSample(
            iterations=totals["vllm:iteration_tokens_total_count"],
            requests=totals["vllm:num_requests_running"] + totals["vllm:num_requests_waiting"],
            process_start_s=totals["process_start_time_seconds"],
            preemptions=totals.get("vllm:num_preemptions_total", 0.0),
        )
    except KeyError as missing:
        raise ValueError(f"its metrics lack {missing}") from None


class Pulse(Enum):
    """What the last samples say."""

    UP = "up"
    RESTARTED = "restarted"
    HUNG = "hung"


class Heartbeat:
    """vLLM's /health stays 200 while its core hangs; steps that stop while work waits tell."""

    def __init__(self, hung_after_s: float) -> None:
        self._hung_after_s = hung_after_s
        self._last: EngineSample | None = None
        self._known = False
        self._hung = False
        self._progress_at_s = 0.0

    def preempted(self, sample: EngineSample) -> bool:
        """Whether pages lost their memory since the last sample; ask before `observe`."""
        last = self._last
        same = last is not None and last.process_start_s == sample.process_start_s
        return same and sample.preemptions > (last.preemptions if last else 0.0)

    @property
    def hung_since_s(self) -> float | None:
        """When a core that hangs was last seen to need no step or make one."""
        return self._progress_at_s if self._hung else None

    def observe(self, now_s: float, sample: EngineSample, sent: int) -> Pulse:
        """Take in a sample, and how many requests of ours wait for an answer, or were given up.

        A core that hung while it was idle counts no request: ours are the ones that tell. One
        that hangs does so until it makes a step, whether or not somebody still waits for it. The
        first sample, and the first of another process, say RESTARTED.
        """
        last, self._last = self._last, sample
        if last is None or sample.process_start_s != last.process_start_s:
            self._known = False
            self._progress(now_s)
        elif sample.iterations != last.iterations or (
            sample.requests + sent == 0 and not self._hung
        ):
            self._progress(now_s)
        self._hung = now_s - self._progress_at_s >= self._hung_after_s
        if self._hung:
            return Pulse.HUNG
        if not self._known:
            self._known = True
            return Pulse.RESTARTED
        return Pulse.UP

    def _progress(self, now_s: float) -> None:
        self._progress_at_s = now_s
        self._hung = False

    def forget(self) -> None:
        """The engine is to be met anew: its next sign of life says RESTARTED."""
        self._known = False
