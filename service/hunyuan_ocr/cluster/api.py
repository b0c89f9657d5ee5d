"""The four things that the signals do at the Kubernetes API, by the official client.

Only its plumbing (address, TLS, a token that is read again when it changes) is used, with plain
JSON: the generated classes for pods alone take 95 MiB and seconds to load.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hunyuan_ocr.sandbox import CREDENTIALS

CONDITION = "hunyuan-ocr.dev/serving"
_CONTROLLER = "hunyuan-ocr.dev/sidecar"
# To connect, and between two bytes of the answer.
TIMEOUT_S = (2.0, 3.0)
_MERGE = "application/merge-patch+json"
_STRATEGIC = "application/strategic-merge-patch+json"


class ClusterError(Exception):
    """The API server was not reached or refused; the message says which and holds no token."""


class NotFound(ClusterError):
    """There is no such object, or none that this pod has rights to."""


class Conflict(ClusterError):
    """The object has changed since it was read."""


@dataclass(frozen=True, slots=True)
class Pod:
    """The pod that this process runs in, as the downward API tells it."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Lease:
    """`holder` is a pod's name or empty; `version` changes with every write of anybody."""

    name: str
    holder: str
    version: str


class ClusterApi:
    """Blocking calls in the name of one pod, each bounded by `TIMEOUT_S`; for one thread.

    Everything raises ClusterError. Imports the official client (about a second) when made.
    """

    def __init__(
        self,
        pod: Pod,
        credentials: Path = CREDENTIALS,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        from kubernetes.client.api_client import ApiClient
        from kubernetes.client.configuration import Configuration
        from kubernetes.config import ConfigException
        from kubernetes.config.incluster_config import InClusterConfigLoader

        self.pod = pod
        configuration = Configuration(retries=False)
        configuration.proxy = None  # the API server is on this side of any proxy
        loader = InClusterConfigLoader(
            token_filename=str(credentials / "token"),
            cert_filename=str(credentials / "ca.crt"),
            environ=environment,
        )
        try:
            loader.load_and_set(configuration)
        except (ConfigException, OSError) as error:
            raise ClusterError(f"no credentials: {error}") from error
        self._client = ApiClient(configuration)

    def replicas(self, deployment: str) -> int:
        """Pods that a Deployment has and is to have: the smaller number where it is scaled."""
        scale = self._call("GET", f"/apis/apps/v1/{self._in('deployments', deployment)}/scale")
        return min(int(scale[part].get("replicas", 0)) for part in ("spec", "status"))

    def lease(self, name: str) -> Lease:
        """Raises NotFound."""
        return _lease(self._call("GET", self._lease_path(name)))

    def take(self, lease: Lease, duration_s: int) -> Lease:
        """Hold `lease`, or hold it on. Raises Conflict where it is not as it was read."""
        spec = {
            "holderIdentity": self.pod.name,
            "leaseDurationSeconds": duration_s,
            "renewTime": _now(),
        }
        return self._patch_lease(lease, spec)

    def give_back(self, lease: Lease) -> None:
        """Let go of `lease`. Raises Conflict where it is not as it was read."""
        nobody = dict.fromkeys(("holderIdentity", "leaseDurationSeconds", "renewTime"))
        self._patch_lease(lease, nobody)

    def set_condition(self, serving: bool, reason: str, message: str) -> None:
        """Write `CONDITION` of the own pod, and no other."""
        condition = {
            "type": CONDITION,
            "status": str(serving),
            "reason": reason,
            "message": message,
            "lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        path = f"/api/v1/{self._in('pods', self.pod.name)}/status"
        self._call("PATCH", path, {"status": {"conditions": [condition]}}, _STRATEGIC)

    def add_event(self, reason: str, note: str, *, warning: bool) -> None:
        """Add an Event about the own pod, as `kubectl describe pod` shows it."""
        event = {
            "metadata": {"name": f"{self.pod.name}.{time.time_ns():x}"},
            "regarding": {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": self.pod.namespace,
                "name": self.pod.name,
                "uid": self.pod.uid,
            },
            "eventTime": _now(),
            "reportingController": _CONTROLLER,
            "reportingInstance": self.pod.name,
            "action": "Serve",
            "reason": reason,
            "note": note,
            "type": "Warning" if warning else "Normal",
        }
        self._call("POST", f"/apis/events.k8s.io/v1/{self._in('events')}", event)

    def close(self) -> None:
        self._client.close()

    def _in(self, *path: str) -> str:
        return "/".join(("namespaces", self.pod.namespace, *path))

    def _lease_path(self, name: str) -> str:
        return f"/apis/coordination.k8s.io/v1/{self._in('leases', name)}"

    def _patch_lease(self, lease: Lease, spec: dict[str, Any]) -> Lease:
        # With a resourceVersion, a patch is refused like an update that comes too late.
        body = {"metadata": {"resourceVersion": lease.version}, "spec": spec}
        return _lease(self._call("PATCH", self._lease_path(lease.name), body, _MERGE))

    def _call(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json"
    ) -> Any:
        from urllib3.exceptions import HTTPError

        headers = {"Accept": "application/json", "Content-Type": content_type}
        try:
            request = self._client.param_serialize(
                method, path, header_params=headers, body=body, auth_settings=["BearerToken"]
            )
            response = self._client.call_api(*request, _request_timeout=TIMEOUT_S)
            text = response.read()
        except (HTTPError, OSError) as error:
            raise ClusterError(f"the API server is not reached: {type(error).__name__}") from error
        try:
            answer = json.loads(text)
        except ValueError as error:
            raise ClusterError(f"{method} {path} was not answered in JSON") from error
        if response.status >= 400:
            kinds: dict[int, type[ClusterError]] = {403: NotFound, 404: NotFound, 409: Conflict}
            kind = kinds.get(response.status, ClusterError)
            raise kind(f"{method} {path}: {response.status} {answer.get('message')}")
        return answer


def _lease(found: Mapping[str, Any]) -> Lease:
    metadata = found["metadata"]
    holder = found.get("spec", {}).get("holderIdentity") or ""
    return Lease(metadata["name"], holder, metadata["resourceVersion"])


def _now() -> str:
    """As Kubernetes wants it: always with six digits of a second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
