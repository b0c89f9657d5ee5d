"""Servers that the API tests share: starting one costs seconds."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from hunyuan_ocr.api.keys import new_key
from tests.api.server import Server, running_server

CALLER_KEY, CALLER_ENTRY = new_key("billing")


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server as `make run` starts it."""
    with running_server(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture(scope="session")
def strict_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with keys, a small body limit and little patience."""
    folder = tmp_path_factory.mktemp("strict")
    keys = folder / "keys"
    keys.write_text(f"# keys\n{CALLER_ENTRY}\n")
    with running_server(
        folder,
        api_keys_file=keys,
        max_body_megabytes=1,
        max_bodies_megabytes=8,
        body_timeout_s=1,
        header_timeout_s=2,
        max_connections=50,
        embedded_workers=1,
        decode_workers=1,
    ) as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    with server.client() as opened:
        yield opened


@pytest.fixture
def keyed_client(strict_server: Server) -> Iterator[httpx.Client]:
    with strict_server.client(Authorization=f"Bearer {CALLER_KEY}") as opened:
        yield opened
