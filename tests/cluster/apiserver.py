"""A kube-apiserver with its etcd and nothing else: no nodes, no controllers, no root needed.

For what the API server itself decides: rights, admission, who was first. Starts in seconds.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from scripts.cluster import binaries, pki
from scripts.cluster.machine import cache
from tests.api.server import free_port

ROOT = Path(__file__).resolve().parents[2]
ARCHIVES = Path(os.environ.get("CLUSTER_CACHE", "../shared/cluster-bin"))
START_WITHIN_S = 60.0


@dataclass
class ApiServer:
    """Listens on 127.0.0.1:`port`; `folder` holds its keys, data and logs."""

    folder: Path
    programs: Path
    port: int = field(default_factory=free_port)
    _etcd_port: int = field(default_factory=free_port)
    _running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def authority(self) -> Path:
        """The certificate of the authority that signed the server's."""
        return self.folder / "pki" / "ca.crt"

    def start(self) -> None:
        """Start what does not run, and wait until it is ready."""
        for name, flags in (("etcd", self._etcd_flags()), ("kube-apiserver", self._api_flags())):
            if name not in self._running:
                with (self.folder / f"{name}.log").open("ab") as log:
                    self._running[name] = subprocess.Popen(
                        (self.programs / name, *flags), stdout=log, stderr=log
                    )
        deadline = time.monotonic() + START_WITHIN_S
        while self._kubectl(("get", "--raw", "/readyz")).returncode:
            assert time.monotonic() < deadline, f"not ready, see {self.folder}"
            time.sleep(0.2)

    def stop(self, *names: str) -> None:
        """Kill the API server, or what else is named."""
        for name in names or ("kube-apiserver",):
            process = self._running.pop(name)
            process.send_signal(signal.SIGKILL)
            process.wait()

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """kubectl's output, as an administrator or with `--token=…`. Fails the test if it fails."""
        done = self._kubectl(arguments, stdin)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    @contextmanager
    def watch(self, path: str) -> Iterator[IO[str]]:
        """Lines of JSON about every change of a list, in their order, from now on."""
        words = self._words(("get", "--raw", f"{path}?watch=true"))
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                yield process.stdout
            finally:
                process.kill()

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        token: str | None = None,
        content_type: str = "application/json",
    ) -> tuple[int, Any]:
        """Status and JSON of one request, as an administrator or as whom a token says."""
        context = ssl.create_default_context(cafile=str(self.authority))
        headers = {"Content-Type": content_type}
        if token is None:
            keys = self.folder / "pki" / "admin"
            context.load_cert_chain(f"{keys}.crt", f"{keys}.key")
        else:
            headers["Authorization"] = f"Bearer {token}"
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=context)
        with closing(connection):
            connection.request(method, path, json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

    def get(self, *arguments: str) -> Any:
        return json.loads(self.kubectl("get", *arguments, "-o", "json"))

    def _kubectl(
        self, arguments: tuple[str, ...], stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        words = self._words(arguments)
        return subprocess.run(words, input=stdin, capture_output=True, text=True, check=False)

    def _words(self, arguments: tuple[str, ...]) -> tuple[str, ...]:
        keys = self.folder / "pki"
        administrator = (f"--client-certificate={keys}/admin.crt", f"--client-key={keys}/admin.key")
        other = any(argument.startswith("--token=") for argument in arguments)
        return (
            str(self.programs / "kubectl"), "--kubeconfig=/dev/null",
            f"--server=https://127.0.0.1:{self.port}", f"--certificate-authority={self.authority}",
            *(() if other else administrator), *arguments,
        )  # fmt: skip

    def _etcd_flags(self) -> list[str]:
        here = f"http://127.0.0.1:{self._etcd_port}"
        peer = f"http://127.0.0.1:{free_port()}"
        return [
            f"--data-dir={self.folder / 'etcd'}", "--unsafe-no-fsync", "--log-level=warn",
            f"--listen-client-urls={here}", f"--advertise-client-urls={here}",
            f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
        ]  # fmt: skip

    def _api_flags(self) -> list[str]:
        keys = self.folder / "pki"
        return [
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            "--bind-address=127.0.0.1", f"--secure-port={self.port}",
            f"--tls-cert-file={keys}/apiserver.crt",
            f"--tls-private-key-file={keys}/apiserver.key", f"--client-ca-file={keys}/ca.crt",
            "--authorization-mode=RBAC", "--service-cluster-ip-range=10.96.0.0/16",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            f"--service-account-key-file={keys}/service-accounts.pub",
            f"--service-account-signing-key-file={keys}/service-accounts.key",
        ]  # fmt: skip


@contextmanager
def running_api_server(folder: Path) -> Iterator[ApiServer]:
    programs = binaries.provide(["hyperkube", "etcd"], cache("cluster"), ROOT / ARCHIVES)
    server = ApiServer(folder, programs)
    pki.write(folder / "pki", pki.control_plane("127.0.0.1"), f"https://127.0.0.1:{server.port}")
    try:
        server.start()
        yield server
    finally:
        server.stop(*server._running)
