"""Values that cannot work are refused before anything is installed, with what to do."""

from __future__ import annotations

from typing import Any

import pytest

from scripts.chart.render import RenderError
from tests.chart.conftest import Render

SHA = "a" * 40
LINE = "billing:" + "0" * 32 + ":" + "0" * 64

# case in ci/, what is changed, what the refusal must say
COMBINATIONS: dict[str, tuple[str, dict[str, Any], str]] = {
    "no image": (
        "rtx-4090-d",
        {"image": {"repository": ""}},
        "make images push REGISTRY=",
    ),
    "tag inside the repository": (
        "rtx-4090-d",
        {"image": {"repository": "registry.example.com:5000/ocr/hunyuan-ocr:1"}},
        "put it into image.tag or image.digest",
    ),
    "digest inside the engine's repository": (
        "rtx-4090-d",
        {"engine": {"image": {"repository": "vllm/vllm-openai@sha256:00"}}},
        "put it into engine.image.tag",
    ),
    "embedded engine in a slim image": (
        "embedded",
        {"image": {"tag": "0.1.0-slim"}},
        "take the tag without -slim",
    ),
    "grace too short": (
        "rtx-4090-d",
        {"terminationGracePeriodSeconds": 60},
        "must be at least 625",
    ),
    "grace too short for a longer request": (
        "rtx-4090-d",
        {
            "terminationGracePeriodSeconds": 625,
            "sidecar": {"settings": {"BATCH_TIMEOUT_S": 900.5}},
        },
        "must be at least 926",
    ),
    "timeout that is no number": (
        "rtx-4090-d",
        {"sidecar": {"settings": {"BATCH_TIMEOUT_S": "10m"}}},
        "BATCH_TIMEOUT_S must be a number of seconds",
    ),
    "label the chart selects by": (
        "rtx-4090-d",
        {"podLabels": {"app.kubernetes.io/name": "other"}},
        "podLabels may not set app.kubernetes.io/name",
    ),
    "annotation the chart sets": (
        "rtx-4090-d",
        {"podAnnotations": {"kubectl.kubernetes.io/default-container": "vllm"}},
        "podAnnotations may not set",
    ),
    "setting the chart derives": (
        "rtx-4090-d",
        {"sidecar": {"settings": {"VLLM_CONCURRENCY": 64}}},
        "may not set VLLM_CONCURRENCY",
    ),
    "setting that does not exist": (
        "rtx-4090-d",
        {"sidecar": {"settings": {"MAX_PAGE": 5}}},
        "MAX_PAGE is no setting of the service",
    ),
    "setting with its prefix": (
        "rtx-4090-d",
        {"sidecar": {"settings": {"HYOCR_MAX_PAGES": 5}}},
        "write them without HYOCR_",
    ),
    "setting in the environment": (
        "rtx-4090-d",
        {"sidecar": {"extraEnv": [{"name": "HYOCR_MAX_PAGES", "value": "5"}]}},
        "put it into sidecar.settings",
    ),
    "keys from two places": (
        "rtx-4090-d",
        {"keys": {"existingSecret": "callers", "entries": [LINE]}},
        "keys.existingSecret and keys.entries are both set",
    ),
    "signals on an old cluster": (
        "rtx-4090-d",
        {"signals": {"enabled": True}},
        "signals.enabled needs Kubernetes 1.30 and this is v1.29.0",
    ),
    "rights for everybody": (
        "signals",
        {"serviceAccount": {"create": False}},
        "set serviceAccount.create=true or name an account",
    ),
    "setting the signals decide": (
        "signals",
        {"sidecar": {"settings": {"SIGNALS_DEPLOYMENT": "other"}}},
        "may not set SIGNALS_DEPLOYMENT",
    ),
    "a key in clear": (
        "rtx-4090-d",
        {"keys": {"entries": ["billing.c2VjcmV0"]}},
        "take the second line that `hunyuan-ocr new-key NAME` prints",
    ),
    "vLLM too old": (
        "rtx-4090-d",
        {"engine": {"version": "0.12.0"}},
        "0.12.0 is too old",
    ),
    "vLLM that does not start": (
        "rtx-4090-d",
        {"engine": {"version": "0.29.0"}},
        "does not start with this model",
    ),
    "vLLM open to others": (
        "rtx-4090-d",
        {"engine": {"extraArgs": ["--host=0.0.0.0"]}},
        "extraArgs may not hold --host",
    ),
    "flag the profile sets": (
        "rtx-4090-d",
        {"engine": {"extraArgs": ["--max_num_seqs", "64"]}},
        "extraArgs may not hold --max-num-seqs",
    ),
    "flag in the profile's own arguments": (
        "rtx-4090-d",
        {"profiles": {"rtx-4090-d": {"extraArgs": ["--max-model-len=8192"]}}},
        "extraArgs may not hold --max-model-len",
    ),
    "queue limit before 0.30": (
        "rtx-4090-d",
        {"engine": {"extraArgs": ["--max-num-queued-reqs", "64"]}},
        "it exists from 0.30.0 on",
    ),
    "environment the launcher needs": (
        "rtx-4090-d",
        {"engine": {"extraEnv": [{"name": "PYTHONPATH", "value": "/elsewhere"}]}},
        "engine.extraEnv may not set PYTHONPATH",
    ),
    "unknown profile": (
        "rtx-4090-d",
        {"gpu": {"profile": "rtx-4090"}},
        "is none of: cpu-trial, h200, rtx-4090-d",
    ),
    "several GPUs and a share of one": (
        "rtx-4090-d",
        {"gpu": {"count": 2, "sharing": {"replicas": 2}}},
        "a pod has several GPUs or a share of one",
    ),
    "GPUs for the CPU": (
        "cpu-trial",
        {"gpu": {"count": 2}},
        "uses no GPU",
    ),
    "a share of no GPU": (
        "cpu-trial",
        {"gpu": {"sharing": {"replicas": 2}}},
        "uses no GPU",
    ),
    "runtime class for the CPU": (
        "cpu-trial",
        {"runtimeClassName": "nvidia"},
        "leave it empty",
    ),
    "GPU build for the CPU": (
        "cpu-trial",
        {"engine": {"image": {"repository": "vllm/vllm-openai"}}},
        "set it to the image hunyuan-ocr-engine-cpu",
    ),
    "GPU profile without a GPU": (
        "rtx-4090-d",
        {"profiles": {"rtx-4090-d": {"gpu": None}}},
        "lacks gpu or gpuMemoryUtilization",
    ),
    "memory range upside down": (
        "rtx-4090-d",
        {"profiles": {"rtx-4090-d": {"gpu": {"memoryMiB": {"min": 30000}}}}},
        "gpu.memoryMiB.min is above max",
    ),
    "two node affinities": (
        "rtx-4090-d",
        {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}},
        "set gpu.requireLabels=false",
    ),
    "GPU among the resources": (
        "rtx-4090-d",
        {"profiles": {"rtx-4090-d": {"resources": {"limits": {"nvidia.com/gpu": 1}}}}},
        "set gpu.count instead",
    ),
    "page larger than the context": (
        "rtx-4090-d",
        {"profiles": {"rtx-4090-d": {"maxModelLen": 1024}}},
        "takes 1058 tokens and maxModelLen 1024 leaves no room",
    ),
    "page larger than a batch": (
        "rtx-4090-d",
        {"profiles": {"rtx-4090-d": {"pagePixels": 4194304}}},
        "more than maxNumBatchedTokens 2048",
    ),
    "path and revision": (
        "rtx-4090-d",
        {"model": {"path": "/models/x"}},
        "model.path and model.revision are both set",
    ),
    "no revision": (
        "rtx-4090-d",
        {"model": {"revision": ""}},
        "git ls-remote https://huggingface.co/tencent/HunyuanOCR HEAD",
    ),
    "trial without a checkpoint": (
        "cpu-trial",
        {"model": {"path": ""}},
        "/models/tiny-hunyuan-vl-native",
    ),
    "claim that stays empty": (
        "cpu-trial",
        {"model": {"cache": "pvc"}},
        "a claim that would stay empty",
    ),
    "path beside the claim": (
        "air-gapped",
        {"model": {"path": "/models/x"}},
        "the path begins with /models-cache/",
    ),
    "path on a claim that is not mounted": (
        "cpu-trial",
        {"model": {"path": "/models-cache/x"}},
        "set model.cache=existingClaim",
    ),
    "claim without a name": (
        "air-gapped",
        {"model": {"existingClaim": ""}},
        "name the claim",
    ),
    "name of a claim that is not used": (
        "rtx-4090-d",
        {"model": {"existingClaim": "models"}},
        "model.existingClaim is set and model.cache is ephemeral",
    ),
    "one-node claim for two pods": (
        "shared-claim",
        {"model": {"pvc": {"accessMode": "ReadWriteOnce"}}},
        "set model.pvc.accessMode=ReadWriteMany",
    ),
    "one-node claim for pods to come": (
        "hpa",
        {"model": {"pvc": {"accessMode": "ReadWriteOnce"}}},
        "autoscaling.maxReplicas 6 share one claim",
    ),
    "fewest pods above the most": (
        "hpa",
        {"autoscaling": {"minReplicas": 7}},
        "autoscaling.minReplicas 7 is above maxReplicas 6",
    ),
    "nobody for KEDA to ask": (
        "keda",
        {"autoscaling": {"prometheus": {"address": ""}}},
        "autoscaling.prometheus.address is not set",
    ),
    "KEDA's address without KEDA": (
        "hpa",
        {"autoscaling": {"prometheus": {"address": "http://prometheus:9090"}}},
        "autoscaling.prometheus is for KEDA and autoscaling.mode is hpa",
    ),
    "an Ingress that reaches nobody": (
        "keda",
        {"networkPolicy": {"callers": []}},
        "the controller cannot reach the pods",
    ),
    "a NodePort that reaches nobody": (
        "cpu-trial",
        {"service": {"type": "NodePort"}},
        "service.type is NodePort and networkPolicy.callers is empty",
    ),
    "a monitor that reads nothing": (
        "cpu-trial",
        {"podMonitor": {"enabled": True}},
        "networkPolicy.monitoring is empty",
    ),
    "autoscaling without its metric": (
        "hpa",
        {"networkPolicy": {"monitoring": []}},
        "networkPolicy.monitoring is empty",
    ),
    "rules about nothing": (
        "cpu-trial",
        {"monitoring": {"rules": {"enabled": True}}},
        "set podMonitor.enabled=true, or load dashboards/rules.yaml",
    ),
    "an Ingress without a host": (
        "keda",
        {"ingress": {"host": ""}},
        "ingress.host is not set",
    ),
    "Redis from two places": (
        "keda",
        {"sidecar": {"settings": {"REDIS_URL": "redis://redis"}}},
        "redis.existingSecret and sidecar.settings REDIS_URL are both set",
    ),
    "Redis for no quota": (
        "cpu-trial",
        {"redis": {"existingSecret": "redis"}},
        "there is no quota to share",
    ),
    "pixel bounds upside down": (
        "cpu-trial",
        {"model": {"minPixels": 500000}},
        "model.minPixels is above model.maxPixels",
    ),
}


@pytest.mark.parametrize("what", COMBINATIONS)
def test_a_combination_that_cannot_work_is_refused(what: str, render: Render) -> None:
    case, changes, sentence = COMBINATIONS[what]
    with pytest.raises(RenderError) as refusal:
        render(case, changes)
    assert "These values cannot work" in str(refusal.value)
    assert sentence in str(refusal.value)


# path to a value, a value it may not have
SCHEMA: list[tuple[str, Any]] = [
    ("image.pullpolicy", "Always"),
    ("image.pullPolicy", "always"),
    ("image.digest", "sha256:123"),
    ("replicas", "two"),
    ("replicas", -1),
    ("replica", 2),
    ("engine.kind", "tensorrt"),
    ("engine.enabled", False),
    ("engine.version", "v0.28.0"),
    ("engine.image.repository", ""),
    ("engine.extraArgs", "--enforce-eager"),
    ("engine.startTimeoutSeconds", 3600),
    ("gpu.count", 0),
    ("gpu.sharing.replicas", 0),
    ("gpu.sharing", 2),
    ("profiles.rtx-4090-d.gpuMemoryUtilization", 1.1),
    ("profiles.rtx-4090-d.gpuMemoryUtilization", 0),
    ("profiles.rtx-4090-d.maxNumSeq", 8),
    ("profiles.rtx-4090-d.maxNumSeqs", 0),
    ("profiles.mine", {"source": "guessed"}),
    ("model.revision", "main"),
    ("model.revision", "f6af82ee"),
    ("model.repository", "HunyuanOCR"),
    ("model.path", "models/x"),
    ("model.generation", "2.0"),
    ("model.cache", "hostPath"),
    ("model.pvc.accessMode", "ReadOnlyMany"),
    ("model.download.source", "s3"),
    ("model.download.endpoint", "hf-mirror.com"),
    ("keys.entries", LINE),
    ("sidecar.settings", {"MAX_PAGES": [5]}),
    ("sidecar.decodeWorkers", 0),
    ("signals.enabled", "yes"),
    ("signals.maxUnreadyPercent", 0),
    ("signals.maxUnreadyPercent", 51),
    ("service.type", "ExternalName"),
    ("service.port", 0),
    ("autoscaling.mode", "vpa"),
    ("autoscaling.minReplicas", 0),
    ("autoscaling.targetPercent", 0.8),
    ("autoscaling.prometheus.address", "prometheus:9090"),
    ("podMonitor.interval", "1m"),
    ("podDisruptionBudget.maxUnavailable", 0),
    ("podDisruptionBudget.maxUnavailable", "half"),
    ("networkPolicy.monitoring", {"namespaceSelector": {}}),
    ("ingress.host", ["ocr.example.com"]),
    ("nodeSelector", {"pool": 1}),
    ("tolerations", {"key": "x"}),
    ("terminationGracePeriodSeconds", "10m"),
]


@pytest.mark.parametrize(("path", "value"), SCHEMA, ids=lambda part: str(part)[:40])
def test_the_schema_refuses_wrong_types_ranges_and_names(
    path: str, value: object, render: Render
) -> None:
    changes: dict[str, Any] = {}
    inner = changes
    *outer, last = path.split(".")
    for key in outer:
        inner = inner.setdefault(key, {})
    inner[last] = value
    with pytest.raises(RenderError) as refusal:
        render("rtx-4090-d", changes)
    assert "don't meet the specifications of the schema" in str(refusal.value)
    where = "/".join(path.split("."))
    assert where in str(refusal.value) or last in str(refusal.value)


def test_all_problems_are_named_at_once(render: Render) -> None:
    with pytest.raises(RenderError) as refusal:
        render("rtx-4090-d", {"image": {"repository": ""}, "model": {"revision": ""}})
    assert "image.repository" in str(refusal.value)
    assert "model.revision" in str(refusal.value)
