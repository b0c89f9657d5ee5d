"""An installation without the extra `embedded`: pages are prepared, only not looked at."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import sys

sys.modules.update(dict.fromkeys(("cv2", "onnxruntime", "rapidocr")))  # as if not installed

import hunyuan_ocr.app
from hunyuan_ocr.documents.document import Document, DocumentKind, ImageEncoding, PrepareOptions
from hunyuan_ocr.documents.prepare import prepare, set_up_worker
from tests.pictures import picture, saved

set_up_worker()
image, _ = picture(size=(400, 4000))
options = PrepareOptions(300_000, 1, ImageEncoding.PNG, orient=sys.argv[1], max_tiles=12)
page = prepare(Document(DocumentKind.PNG, saved(image, "PNG")), 0, options)
print(len(page.tiles), page.rotation_applied, page.blank, page.source.width, page.source.height)
empty = image.crop((0, 3000, 400, 4000))
print(prepare(Document(DocumentKind.PNG, saved(empty, "PNG")), 0, options).blank)
"""


def run(orient: str) -> list[str]:
    command = [sys.executable, "-c", _PROGRAM, orient]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def test_long_pages_are_cut_and_nothing_is_said_of_blankness_or_the_way_up() -> None:
    assert run("auto") == ["7 0 False 400 4000", "False"]


def test_pages_are_turned_as_told() -> None:
    assert run("90") == ["7 90 False 4000 400", "False"]
