"""Certificates of a test cluster: one authority, and a leaf for everyone who takes part.

Control plane components share one administrator's identity; nodes have their own, so that the node
authorizer and NodeRestriction work as they do elsewhere.
"""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

DAYS = "30"
KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{{name: local, cluster: {{server: "{server}", certificate-authority-data: {ca}}}}}]
users: [{{name: {name}, user: {{client-certificate-data: {crt}, client-key-data: {key}}}}}]
contexts: [{{name: local, context: {{cluster: local, user: {name}}}}}]
current-context: local
"""


@dataclass(frozen=True, slots=True)
class Leaf:
    """`subject` in openssl's form, `/O=group/CN=name`; `names` as in subjectAltName."""

    file: str
    subject: str
    names: tuple[str, ...] = ()


def control_plane(address: str) -> tuple[Leaf, ...]:
    service = ("kubernetes", "default", "svc", "cluster", "local")
    names = [f"DNS:{'.'.join(service[:parts])}" for parts in (1, 2, 3, 5)]
    names += [f"IP:{ip}" for ip in ("127.0.0.1", "10.96.0.1", address)]
    return (
        Leaf("apiserver", "/CN=kube-apiserver", ("DNS:localhost", *names)),
        Leaf("admin", "/O=system:masters/CN=admin"),
        Leaf("front-proxy", "/CN=front-proxy"),
    )


def node(name: str, address: str) -> Leaf:
    names = (f"DNS:{name}", f"IP:{address}")
    return Leaf(name, f"/O=system:nodes/CN=system:node:{name}", names)


def write(folder: Path, leaves: Iterable[Leaf], server: str) -> None:
    """Write the authority, every leaf with its kubeconfig, and the service accounts' keys."""
    folder.mkdir(parents=True)
    _openssl(folder, *_request("ca", "/CN=cluster"), "-x509", "-days", DAYS, "-out", "ca.crt",
             "-addext", "keyUsage=critical,keyCertSign,cRLSign,digitalSignature")  # fmt: skip
    _openssl(folder, "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256",
             "-out", "service-accounts.key")  # fmt: skip
    _openssl(folder, "pkey", "-in", "service-accounts.key", "-pubout",
             "-out", "service-accounts.pub")  # fmt: skip
    for leaf in leaves:
        _sign(folder, leaf)
        _write_kubeconfig(folder, leaf.file, server)


def _request(file: str, subject: str) -> tuple[str, ...]:
    return ("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
            "-keyout", f"{file}.key", "-subj", subject)  # fmt: skip


def _sign(folder: Path, leaf: Leaf) -> None:
    extensions = [
        "keyUsage=critical,digitalSignature,keyEncipherment",
        "extendedKeyUsage=serverAuth,clientAuth",
    ]
    if leaf.names:
        extensions.append(f"subjectAltName={','.join(leaf.names)}")
    (folder / "extensions").write_text("\n".join(extensions))
    _openssl(folder, *_request(leaf.file, leaf.subject), "-out", "request")
    _openssl(folder, "x509", "-req", "-in", "request", "-CA", "ca.crt", "-CAkey", "ca.key",
             "-CAcreateserial", "-days", DAYS, "-extfile", "extensions",
             "-out", f"{leaf.file}.crt")  # fmt: skip


def _write_kubeconfig(folder: Path, name: str, server: str) -> None:
    encoded = {
        part: base64.b64encode((folder / file).read_bytes()).decode()
        for part, file in (("ca", "ca.crt"), ("crt", f"{name}.crt"), ("key", f"{name}.key"))
    }
    text = KUBECONFIG.format(server=server, name=name, **encoded)
    (folder / f"{name}.kubeconfig").write_text(text)


def _openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, stderr=subprocess.DEVNULL)
