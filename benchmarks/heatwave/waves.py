"""Heat waves: the air before the card and what its fans move, second by second."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

ROOM_C = 28.0
BEGIN_S = 300.0


@dataclass(frozen=True, slots=True)
class Wave:
    """From `BEGIN_S` to `end_s` something is wrong; the run goes on until `until_s`."""

    name: str
    label: str
    inlet_c: Callable[[float], float]
    airflow: Callable[[float], float]
    end_s: float
    until_s: float


def _steady(value: float) -> Callable[[float], float]:
    return lambda _: value


def _during(end_s: float, inside: float, outside: float) -> Callable[[float], float]:
    return lambda t: inside if BEGIN_S <= t < end_s else outside


def _ramp(degrees: float, ramp_s: float, end_s: float) -> Callable[[float], float]:
    """Up by `degrees` within `ramp_s`, down within 60 s before the end."""

    def inlet_c(t: float) -> float:
        part = min((t - BEGIN_S) / ramp_s, (end_s - t) / 60.0, 1.0)
        return ROOM_C + degrees * max(0.0, part)

    return inlet_c


def _wave(
    name: str,
    label: str,
    lasts_s: float,
    *,
    degrees: float = 0.0,
    ramp_s: float = 60.0,
    airflow: float = 1.0,
) -> Wave:
    end_s = BEGIN_S + lasts_s
    return Wave(
        name,
        label,
        _ramp(degrees, ramp_s, end_s),
        _during(end_s, airflow, 1.0),
        end_s,
        end_s + 600.0,
    )


# A warm room all the time: the card holds itself at its target and is in health.
AT_TARGET = Wave("at-target", "warm room, 43 °C", _steady(43.0), _steady(1.0), BEGIN_S, 3600.0)
MILD = _wave("mild", "inlet 25 °C warmer", 1200.0, degrees=25.0, ramp_s=300.0)
SEVERE = _wave("severe", "all fans stop", 1200.0, airflow=0.0)
SEVEREST = _wave("severest", "all fans stop, inlet 20 °C warmer", 1200.0, degrees=20.0, airflow=0.0)
BLIP = _wave("blip", "all fans stop for 20 s", 20.0, airflow=0.0)
DRIFT = _wave("drift", "inlet 30 °C warmer within an hour", 4200.0, degrees=30.0, ramp_s=3600.0)
WAVES = (AT_TARGET, MILD, BLIP, DRIFT, SEVERE, SEVEREST)
