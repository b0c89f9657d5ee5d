"""The pods, as Kubernetes sees them, and the service's process."""

from __future__ import annotations

from dashboards.panels import RED, Row, lines
from dashboards.promql import BOARD, PODS, by_pod, ratio

_OWN = 'container!=""'

_BY = ("pod", "container")
_NAME = "{{pod}} {{container}}"
_MEMORY = PODS.series("container_memory_working_set_bytes", _OWN)
_LIMIT = PODS.series("kube_pod_container_resource_limits", 'resource="memory"')
_RESTARTS = PODS.series("kube_pod_container_status_restarts_total")
_READY = PODS.series("kube_pod_status_ready", 'condition="true"')

KUBERNETES = Row(
    "Pods",
    (
        lines(
            "CPU",
            "Cores in use. From cAdvisor.",
            "short",
            (PODS.rate("container_cpu_usage_seconds_total", _OWN, by=_BY), _NAME),
        ),
        lines(
            "CPU held back",
            "The share of periods in which a limit held the container back. There is none "
            "unless a CPU limit is set.",
            "percentunit",
            (
                ratio(
                    PODS.rate("container_cpu_cfs_throttled_periods_total", _OWN, by=_BY),
                    PODS.rate("container_cpu_cfs_periods_total", _OWN, by=_BY),
                ),
                _NAME,
            ),
            top=1,
        ),
        lines(
            "Memory",
            "In use, of the container's limit; at 100 % the kernel kills it. From cAdvisor and "
            "kube-state-metrics.",
            "percentunit",
            (
                f"max by (pod, container) ({_MEMORY}) / "
                f"on (pod, container) (max by (pod, container) ({_LIMIT}) > 0)",
                _NAME,
            ),
            limits=((0.9, RED),),
        ),
        lines(
            "Restarts",
            "Of containers. vLLM's own probe restarts it when it hangs. From kube-state-metrics.",
            "short",
            (f"sum by (pod, container) (increase({_RESTARTS}[{PODS.window}]))", _NAME),
        ),
        lines(
            "Ready",
            "1 for a pod that is in the Service. From kube-state-metrics.",
            "short",
            (
                f"max by (pod) ({_READY})",
                "{{pod}}",
            ),
        ),
        lines(
            "Network",
            "Bytes received and sent. From cAdvisor.",
            "Bps",
            (
                PODS.rate("container_network_receive_bytes_total", by=("pod",)),
                "{{pod}} received",
            ),
            (PODS.rate("container_network_transmit_bytes_total", by=("pod",)), "{{pod}} sent"),
        ),
    ),
)

# vLLM has metrics of these names too.
_SERVICE = 'endpoint!="engine"'

# Folded away: of use to those who look for a leak.

PROCESS = Row(
    "Process",
    (
        lines(
            "CPU",
            "Cores that the service's main process uses; pages are decoded in others.",
            "short",
            (
                BOARD.rate("process_cpu_seconds_total", _SERVICE, by=("pod", "instance")),
                "{{pod}} {{instance}}",
            ),
        ),
        lines(
            "Memory",
            "Of the main process.",
            "bytes",
            by_pod(BOARD.series("process_resident_memory_bytes", _SERVICE)),
        ),
        lines(
            "Open files",
            "And connections. What only grows leaks.",
            "short",
            by_pod(BOARD.series("process_open_fds", _SERVICE)),
        ),
        lines(
            "Lag of the event loop",
            "How late it ran a timer: above 0.1 s something blocks it.",
            "s",
            *(
                (
                    BOARD.quantile(q, "hunyuan_ocr_event_loop_lag_seconds"),
                    f"p{q * 100:.0f}",
                )
                for q in (0.5, 0.99)
            ),
        ),
        lines(
            "Tasks of the event loop",
            "What only grows leaks.",
            "short",
            by_pod(BOARD.series("hunyuan_ocr_event_loop_tasks")),
        ),
        lines(
            "Bodies in memory",
            "Bytes of request bodies that are held.",
            "bytes",
            by_pod(BOARD.series("hunyuan_ocr_body_bytes")),
        ),
        lines(
            "Builds",
            "Pods by the version that they run.",
            "short",
            (f"count by (version) ({BOARD.series('hunyuan_ocr_build_info')})", "{{version}}"),
        ),
    ),
    collapsed=True,
)
