"""vLLM as seen from outside: a renderer on the CPU, then continuous batching on the card.

The scheduler works in steps. Every running sequence gains a token a step; sequences that begin
add their image and prompt to the step they begin in. Steps in which nobody comes or goes are
equal and are taken at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import count

from benchmarks.simulator.events import Timeline, Timer
from benchmarks.simulator.parameters import EngineParameters
from hunyuan_ocr.traffic.cost import Work


@dataclass(eq=False, slots=True)
class Sequence:
    """One page in the engine."""

    work: Work
    megapixels: float
    done: Callable[[], None]
    generated: int = 0
    begun_step: int = 0  # first step of its present run
    aborted: bool = False
    running: bool = False

    @property
    def prompt_tokens(self) -> int:
        return self.work.visual_tokens + self.generated

    def finish_step(self) -> int:
        return self.begun_step + self.work.output_tokens - self.generated


class Engine:
    """The simulated engine; `preemptions` and `busy_s` are counted."""

    def __init__(self, timeline: Timeline, parameters: EngineParameters) -> None:
        self.parameters = parameters
        self._timeline = timeline
        self._to_render: deque[Sequence] = deque()
        self._rendering = 0
        self._waiting: deque[Sequence] = deque()
        self._running: list[tuple[int, int, Sequence]] = []
        self._order = count()
        self._held = 0
        self._step = 0
        self._kv_tokens = 0  # at the beginning of the present leap
        self._leap: tuple[float, float, int] | None = None  # begun, seconds a step, steps
        self._timer: Timer | None = None
        self.preemptions = 0
        self._slowness = 1.0

    @property
    def held(self) -> int:
        """Pages running or waiting anywhere inside."""
        return self._held

    def slow_down(self, factor: float) -> None:
        """From the next step on everything takes `factor` times as long as at first."""
        self._slowness = factor

    def submit(self, work: Work, megapixels: float, done: Callable[[], None]) -> Sequence | None:
        """Take a page in; None is a 503."""
        limit = self.parameters.max_queued
        if limit is not None and self._held >= limit:
            return None
        sequence = Sequence(work, megapixels, done)
        self._held += 1
        self._to_render.append(sequence)
        self._render()
        return sequence

    def abort(self, sequence: Sequence) -> None:
        """The client left; its place is free after the present step."""
        if sequence.aborted:
            return
        sequence.aborted = True
        self._held -= 1
        if sequence.running:
            self._interrupt()

    def _render(self) -> None:
        while self._to_render and self._rendering < self.parameters.renderers:
            sequence = self._to_render.popleft()
            if sequence.aborted:
                continue
            self._rendering += 1
            duration_s = self.parameters.render_megapixel_s * sequence.megapixels * self._slowness
            self._timeline.after(duration_s, partial(self._rendered, sequence))

    def _rendered(self, sequence: Sequence) -> None:
        self._rendering -= 1
        if not sequence.aborted:
            self._waiting.append(sequence)
            self._interrupt()
        self._render()

    def _interrupt(self) -> None:
        """Somebody comes or goes: look again at the end of the present step."""
        if self._leap is None:
            self._begin_leap()
            return
        begun, step_s, steps = self._leap
        done = int((self._timeline.now - begun) / step_s) + 1
        if done < steps and self._timer is not None:
            self._timer.cancel()
            self._leap = (begun, step_s, done)
            self._timer = self._timeline.at(begun + done * step_s, self._end_leap)

    def _end_leap(self) -> None:
        assert self._leap is not None
        steps = self._leap[2]
        self._leap = None
        self._step += steps
        self._kv_tokens += steps * len(self._running)
        self._drop_aborted()
        finished = []
        while self._running and self._running[0][0] <= self._step:
            sequence = heappop(self._running)[2]
            self._kv_tokens -= sequence.work.tokens
            sequence.running = False
            self._held -= 1
            finished.append(sequence)
        self._begin_leap()
        for sequence in finished:
            sequence.done()

    def _drop_aborted(self) -> None:
        gone = [item for item in self._running if item[2].aborted]
        if gone:
            self._running = [item for item in self._running if not item[2].aborted]
            heapify(self._running)
            for _, _, sequence in gone:
                self._kv_tokens -= self._tokens_of(sequence)
                sequence.running = False

    def _tokens_of(self, sequence: Sequence) -> int:
        return sequence.prompt_tokens + self._step - sequence.begun_step

    def _begin_leap(self) -> None:
        self._preempt()
        prefill_s = self._begin_sequences()
        if not self._running:
            return
        sequences = len(self._running)
        p = self.parameters
        decode_s = (p.step_s + p.step_sequence_s * sequences) * self._slowness
        if prefill_s:
            steps, step_s = 1, decode_s + prefill_s * self._slowness
        else:
            until_finish = self._running[0][0] - self._step
            until_full = (p.kv_tokens - self._kv_tokens) // sequences
            steps, step_s = max(1, min(until_finish, until_full)), decode_s
        self._leap = (self._timeline.now, step_s, steps)
        self._timer = self._timeline.after(steps * step_s, self._end_leap)

    def _begin_sequences(self) -> float:
        """Let the next ones in as tokens, cache and places allow; returns their prefill time."""
        p = self.parameters
        budget, prefill_s = p.batched_tokens - len(self._running), 0.0
        while self._waiting and len(self._running) < p.sequences:
            sequence = self._waiting[0]
            tokens = sequence.prompt_tokens
            if sequence.aborted:
                self._waiting.popleft()
                continue
            if tokens > budget or self._kv_tokens + tokens > p.kv_tokens:
                break
            self._waiting.popleft()
            budget -= tokens
            self._kv_tokens += tokens
            prefill_s += p.prefill_token_s * tokens + p.vision_tflop_s * sequence.work.vision_tflop
            sequence.begun_step = self._step
            sequence.running = True
            heappush(self._running, (sequence.finish_step(), next(self._order), sequence))
        return prefill_s

    def _preempt(self) -> None:
        """The cache is full: the last that came gives up its place and is computed anew later."""
        while self._running and self._kv_tokens + len(self._running) > self.parameters.kv_tokens:
            newest = max(self._running, key=lambda item: item[1])
            self._running.remove(newest)
            heapify(self._running)
            sequence = newest[2]
            self._kv_tokens -= self._tokens_of(sequence)
            sequence.generated += self._step - sequence.begun_step
            sequence.running = False
            self._waiting.appendleft(sequence)
            self.preemptions += 1
