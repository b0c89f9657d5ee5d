"""Write down which metrics a scrape has: a line each with name, type and labels, no values.

curl -s localhost:9180/metrics/engine | python dashboards/scrape.py > dashboards/golden/NAME.txt
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from prometheus_client.parser import text_string_to_metric_families

# Of the sample's kind and not of the metric.
_NOT_LABELS = {"le", "quantile"}


def listed(text: str) -> list[str]:
    """Sorted lines `name type label label …` of what Prometheus's text format holds."""
    lines = []
    for family in text_string_to_metric_families(text):
        if family.name.endswith("_created"):
            continue
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = {label for sample in family.samples for label in sample.labels}
        lines.append(" ".join((name, family.type, *sorted(labels - _NOT_LABELS))))
    return sorted(lines)


def samples(lines: Iterable[str]) -> dict[str, tuple[str, set[str]]]:
    """By the name of a series, the type of its metric and its labels, from such lines."""
    found = {}
    for line in lines:
        name, kind, *labels = line.split()
        if kind == "histogram":
            found[f"{name}_bucket"] = kind, {*labels, "le"}
            found[f"{name}_sum"] = found[f"{name}_count"] = kind, set(labels)
        else:
            found[name] = kind, set(labels)
    return found


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in listed(sys.stdin.read()))
