"""A wave as a script: what the probe would write each second, one JSON object a line.

python -m benchmarks.heatwave.script NAME [--guarded]

For playing a wave to a real probe and service over a library that pretends to be NVML. Played
like this the card does not feel what the service does; `card.Card` can be run in step with one.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict

from benchmarks.heatwave.card import Sample
from benchmarks.heatwave.run import run
from benchmarks.heatwave.waves import WAVES, Wave


def samples(wave: Wave, *, guarded: bool) -> Iterator[tuple[float, Sample]]:
    """Seconds since the begin, and the sample taken then."""
    for second in run(wave, guarded=guarded).seconds:
        yield second.at, second.sample


def main() -> None:
    waves = {wave.name: wave for wave in WAVES}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("name", choices=waves)
    parser.add_argument("--guarded", action="store_true")
    options = parser.parse_args()
    for at, sample in samples(waves[options.name], guarded=options.guarded):
        print(json.dumps({"at": at, **asdict(sample), "reasons": sorted(sample.reasons)}))


if __name__ == "__main__":
    main()
