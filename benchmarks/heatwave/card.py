"""A graphics card that gets hot: two heat capacities, a fan, and what the driver does about it.

    power -> die --R_die--> heat sink --R_sink(airflow)--> inlet air

The driver lowers the clock to hold the target temperature (software thermal slowdown); above the
slowdown threshold the hardware cuts it (hardware thermal slowdown); at the shutdown threshold the
card is gone until it is started again.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

_V_FLOOR = 0.65


@dataclass(frozen=True, slots=True)
class CardParameters:
    """An RTX 4090 D. "Guess": no public source; docs/heatwave.md varies them.

    `idle_w`: nvidia-smi of an RTX 4090 at 40 °C says 27.98 W.
    `awake_w`, `dynamic_w`: guess, 330 W with 16 pages in flight. An RTX 4090 in games takes 347,
        305, 268 W at 2726, 2602, 2443 MHz (QuasarZone's power limits): 110 W + 237 W * clock^4.
    `die_k_per_w`, `sink_k_per_w`: guess, 0.13 K/W with fans at full speed. Reviews see near 68 °C
        at some 430 W in open air at 22 °C, 0.11 K/W.
    `die_j_per_k`, `sink_j_per_k`: guess, time constants of 3 s and, at full speed, 72 s.
    `chassis_flow`: guess, the air that still moves when all fans of the card stand.
    `target_c`, `slowdown_c`, `shutdown_c`: nvidia-smi of an RTX 4090 at 40 °C: target 83,
        T.Limit 42, slowdown -2, shutdown -7.
    `least_clock`: of the full clock; an RTX A4000 short of air went from 1560 to 375 MHz.
    `regulation_per_k`, `regulation_per_s`: guess, the clock's change for each degree off the
        target, at once and in each second.
    `cut_clock`: NVML: "by a factor of 2 or more"; guess within that.
    `release_c`: guess, how far it must cool before the hardware gives the clock back.
    `lost_s`: guess, until a card that shut down and its engine are there again.
    """

    full_clock_mhz: float = 2520.0
    idle_w: float = 28.0
    awake_w: float = 82.0
    dynamic_w: float = 220.0
    die_k_per_w: float = 0.05
    sink_k_per_w: float = 0.08
    die_j_per_k: float = 60.0
    sink_j_per_k: float = 900.0
    chassis_flow: float = 0.12
    fan_from_c: float = 50.0
    fan_full_c: float = 80.0
    target_c: float = 83.0
    limit_c: float = 82.0
    slowdown_c: float = 84.0
    shutdown_c: float = 89.0
    least_clock: float = 0.25
    regulation_per_k: float = 0.05
    regulation_per_s: float = 0.03
    cut_clock: float = 0.2
    release_c: float = 3.0
    lost_s: float = 180.0
    noise_c: float = 0.3


@dataclass(frozen=True, slots=True)
class Sample:
    """What the probe would write, by its names."""

    age_s: float
    temperature_c: float | None
    slowdown_in_c: float | None
    margin_c: float | None
    reasons: frozenset[str]
    throttled_ns: int | None
    sm_clock_mhz: float | None
    power_w: float | None


class Card:
    """`advance` it by small steps; temperatures in °C, clocks as parts of the full one."""

    def __init__(self, parameters: CardParameters, inlet_c: float, rng: Random) -> None:
        self.parameters = parameters
        self._rng = rng
        self.die_c = self.sink_c = inlet_c
        self.power_w = parameters.idle_w
        self._regulated = self._integral = 1.0
        self._cut = False
        self._throttled_s = 0.0
        self._lost_for_s = 0.0

    @property
    def lost(self) -> bool:
        return self._lost_for_s > 0

    @property
    def clock(self) -> float:
        cut = self.parameters.cut_clock if self._cut else 1.0
        return min(self._regulated, cut)

    def advance(self, step_s: float, load: float, *, inlet_c: float, airflow: float) -> None:
        """`load`: 0 to 1 of the work the card can do at its clock; `airflow` 1: all fans turn."""
        p = self.parameters
        self.power_w = p.idle_w if self.lost else self._power_w(load)
        flow = p.chassis_flow + (1 - p.chassis_flow) * airflow * self._fan()
        into_sink_w = (self.die_c - self.sink_c) / p.die_k_per_w
        out_w = (self.sink_c - inlet_c) / (p.sink_k_per_w / flow**0.8)
        self.die_c += step_s * (self.power_w - into_sink_w) / p.die_j_per_k
        self.sink_c += step_s * (into_sink_w - out_w) / p.sink_j_per_k
        self._regulate(step_s)

    def _fan(self) -> float:
        """Its speed: 30 % when cool, full before the target is reached."""
        p = self.parameters
        part = (self.die_c - p.fan_from_c) / (p.fan_full_c - p.fan_from_c)
        return 0.3 + 0.7 * min(max(part, 0.0), 1.0)

    def _power_w(self, load: float) -> float:
        """Switching takes clock * voltage^2; below its floor the voltage falls no further."""
        p = self.parameters
        if load == 0:
            return p.idle_w
        clock = self.clock
        switching = clock**4 if clock > _V_FLOOR else _V_FLOOR**3 * clock
        awake_w = p.awake_w * (0.5 + 0.5 * load)
        return p.idle_w + awake_w + p.dynamic_w * switching * (0.3 + 0.7 * load)

    def _regulate(self, step_s: float) -> None:
        p = self.parameters
        self._lost_for_s = max(0.0, self._lost_for_s - step_s)
        if self.die_c >= p.shutdown_c:
            self._lost_for_s = p.lost_s
        room_c = p.target_c - self.die_c
        self._integral = self._possible(self._integral + step_s * p.regulation_per_s * room_c)
        self._regulated = self._possible(self._integral + p.regulation_per_k * room_c)
        self._cut = self.die_c >= p.slowdown_c - (p.release_c if self._cut else 0.0)
        if self.clock < 1:
            self._throttled_s += step_s

    def _possible(self, clock: float) -> float:
        return min(max(clock, self.parameters.least_clock), 1.0)

    def sample(self) -> Sample:
        """Whole degrees, as NVML gives them, with the sensor's noise."""
        p = self.parameters
        shown_c = round(self.die_c + self._rng.gauss(0, p.noise_c))
        reasons = {"software_thermal"} if self._regulated < 1 else set()
        if self._cut:
            reasons |= {"hardware_thermal", "hardware_slowdown"}
        return Sample(
            age_s=0.3,
            temperature_c=shown_c,
            slowdown_in_c=p.slowdown_c - shown_c,
            margin_c=p.limit_c - shown_c,
            reasons=frozenset(reasons),
            throttled_ns=int(self._throttled_s * 1e9),
            sm_clock_mhz=self.clock * p.full_clock_mhz,
            power_w=self.power_w,
        )
