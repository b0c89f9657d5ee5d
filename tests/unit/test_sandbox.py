"""A worker cannot read the pod's token, and reads pages as before."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hunyuan_ocr import sandbox
from hunyuan_ocr.documents.document import (
    Document,
    DocumentKind,
    ImageEncoding,
    PrepareOptions,
)
from hunyuan_ocr.documents.prepare import prepare
from hunyuan_ocr.errors import PageFailed
from hunyuan_ocr.workers import WorkerPool
from tests import files

OPTIONS = PrepareOptions(max_pixels=100_000, min_pixels=1, encoding=ImageEncoding.PNG)


@pytest.fixture
def token(tmp_path: Path) -> Path:
    """A token as kubelet lays it down, behind two links, with another volume beside it."""
    for name in ("serviceaccount/..2026", "spool"):
        (tmp_path / name).mkdir(parents=True)
    folder = tmp_path / "serviceaccount"
    (folder / "..2026" / "token").write_text("secret")
    (folder / "..data").symlink_to("..2026")
    (folder / "token").symlink_to("..data/token")
    (tmp_path / "link").symlink_to("serviceaccount")
    return tmp_path / "link" / "token"


@pytest.fixture
async def pool(token: Path) -> AsyncIterator[WorkerPool]:
    pool = WorkerPool(workers=1, setup=sandbox.hide, setup_args=(token.parent,))
    pool.start()
    yield pool
    await pool.close()


async def test_a_worker_that_reads_pages_cannot_read_the_token(
    pool: WorkerPool, token: Path
) -> None:
    worker = await pool.run(os.getpid, timeout_s=20)
    spooled = token.parents[1] / "spool" / "page"
    spooled.write_bytes(files.pdf_pages(1))
    page = await pool.run(
        prepare, Document(DocumentKind.PDF, b"", spooled), 0, OPTIONS, timeout_s=20
    )
    assert page.source.width > 0
    rotated = token.resolve().parents[1] / "..2027"  # kubelet brings a new token in a new folder
    rotated.mkdir()
    (rotated / "token").write_text("newer secret")
    ways = (token, token.resolve(), rotated / "token", Path(f"/proc/{os.getpid()}/root{token}"))
    for way in ways:
        if sandbox.available():
            with pytest.raises(PageFailed, match="PermissionError"):
                await pool.run(Path.read_text, way, timeout_s=20)
        else:  # then the service warns, see docs/decisions/0014
            assert await pool.run(Path.read_text, way, timeout_s=20)
    assert await pool.run(os.getpid, timeout_s=20) == worker
    assert token.read_text() == "secret"  # the service itself still can


async def test_what_a_worker_starts_cannot_either(pool: WorkerPool, token: Path) -> None:
    status = await pool.run(os.system, f"cat {token}", timeout_s=20)
    assert (status != 0) == sandbox.available()


def test_other_threads_would_keep_their_rights(tmp_path: Path) -> None:
    """numpy has started some here, so the call must not pretend."""
    if sandbox.available():
        with pytest.raises(RuntimeError, match="other threads"):
            sandbox.hide(tmp_path)
    sandbox.hide(tmp_path / "absent")  # no token, nothing to hide
