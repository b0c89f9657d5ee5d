"""What runs inside a worker process of the embedded engine: one page in, placed lines out.

Only `load` and `read_page` are called from outside, by name. Numeric libraries are imported
in `load`, because they fix their thread counts when first imported.
"""

from __future__ import annotations

import logging
import math
import os
import sys
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hunyuan_ocr.documents import bundled
from hunyuan_ocr.engines.base import Line
from hunyuan_ocr.engines.reading_order import RUNS_DOWN, Fragment, arrange
from hunyuan_ocr.errors import EngineRejected

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Image = NDArray[Any]
    Quad = NDArray[np.float32]

MODELS = {"Det": "PP-OCRv6_det_small.onnx", "Rec": "PP-OCRv6_rec_small.onnx"}

# The detector finds text of 10 to 100 pixels: it gets small images enlarged, and large ones
# reduced, which costs no accuracy, since text is read from the image itself.
_DETECT_PIXELS_MIN = 250_000
_DETECT_PIXELS_MAX = 2_000_000
_ENLARGEMENT_MAX = 3.0
# A line or two on large paper it misses or misplaces: it looks again at the inked part alone.
_FEW_QUADS = 3
_INKED_MARGIN_PX = 40
_INKED_SHARE_MAX = 0.5
# Glyphs missed at first read with 0.95 and more then; blots, which look like some, with less.
_MIN_CONFIDENCE_ALONE = 0.9
_MIN_CONFIDENCE = 0.5


@dataclass(slots=True)
class _Models:
    detector: Any
    recognizer: Any


_models: _Models | None = None


def load(threads: int) -> None:
    """Make this process a reader: without network, threads pinned, models warm.

    Raises FileNotFoundError where a bundled model is missing: none is ever downloaded.
    """
    global _models
    sys.addaudithook(_forbid_network)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(threads)
    _models = _load_models(threads)
    _warm()


def _forbid_network(event: str, _: tuple[object, ...]) -> None:
    if event in {"socket.connect", "socket.getaddrinfo"}:
        raise PermissionError("the embedded engine never uses the network")


def ready() -> None:
    """Return once this worker takes pages."""


def model_paths() -> dict[str, Path]:
    """The bundled model files by stage; raises FileNotFoundError where one is missing."""
    return {stage: bundled.model_path(name) for stage, name in MODELS.items()}


def _load_models(threads: int) -> _Models:
    import cv2
    from omegaconf import OmegaConf
    from rapidocr.ch_ppocr_det import TextDetector
    from rapidocr.ch_ppocr_rec import TextRecognizer
    from rapidocr.main import DEFAULT_CFG_PATH
    from rapidocr.utils.parse_parameters import ParseParams

    cv2.setNumThreads(threads)
    logging.getLogger("RapidOCR").setLevel(logging.WARNING)
    defaults: Any = ParseParams.load(DEFAULT_CFG_PATH)
    # Given a session, rapidocr looks for no model file: nothing can be downloaded.
    given: dict[str, dict[str, object]] = {
        stage: {"session": bundled.session(path, threads), "font_path": None}
        for stage, path in model_paths().items()
    }
    given["Rec"]["rec_batch_num"] = 1  # lines of one length are rare: padding costs more
    given["Rec"]["rec_img_shape"] = [3, 48, 120]  # shorter lines are padded to this width
    configs: Any = {
        stage: OmegaConf.create({**defaults[stage], **more}, flags={"allow_objects": True})
        for stage, more in given.items()
    }
    return _Models(TextDetector(configs["Det"]), TextRecognizer(configs["Rec"]))


def _warm() -> None:
    import numpy as np

    image = np.full((64, 256, 3), 255, np.uint8)
    image[24:40, 32:64] = 0  # something to find, so that the recognizer is warmed too
    _read(image, join_cells=True)


def read_page(data: bytes, join_cells: bool) -> list[Line]:
    """Read an encoded image; polygons in its pixels, lines in reading order.

    Raises EngineRejected where they are no image.
    """
    import cv2
    import numpy as np

    flags = cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION
    image = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
    if image is None:
        raise EngineRejected("the image could not be decoded")
    return _read(image, join_cells=join_cells)


def _read(image: Image, *, join_cells: bool) -> list[Line]:
    from rapidocr.ch_ppocr_rec import TextRecInput

    from hunyuan_ocr.engines.spacing import restore_spaces

    if _models is None:
        raise RuntimeError("load() comes first")
    quads = _find(_models.detector, image)
    least = _MIN_CONFIDENCE if quads else _MIN_CONFIDENCE_ALONE
    if len(quads) <= _FEW_QUADS:
        quads = _find_inked(_models.detector, image) or quads
    if not quads:
        return []
    crops = [_crop(image, quad) for quad in quads]
    read = _models.recognizer(TextRecInput(img=crops, return_word_box=True))
    fragments = []
    for quad, crop, text, score, words in zip(
        quads, crops, read.txts, read.scores, read.word_results, strict=True
    ):
        if text.strip() and score >= least:
            characters = list(chain.from_iterable(words.words))
            columns = list(chain.from_iterable(words.word_cols))
            polygon = tuple((float(x), float(y)) for x, y in quad)
            spaced = restore_spaces(text.strip(), characters, columns, crop)
            fragments.append(Fragment(spaced, polygon))
    return arrange(fragments, join_cells=join_cells)


def _find(detector: Any, image: Image) -> list[Quad]:
    """Quads of text in pixels of `image`, each from its upper left corner clockwise."""
    height, width = image.shape[:2]
    enlarge = min(math.sqrt(_DETECT_PIXELS_MIN / (width * height)), _ENLARGEMENT_MAX)
    reduce = math.sqrt(_DETECT_PIXELS_MAX / (width * height))
    # rapidocr knows a least shorter side, to enlarge, and a greatest longer side, to reduce.
    if enlarge > 1:
        detector.limit_type, detector.limit_side_len = "min", enlarge * min(width, height)
    else:
        detector.limit_type, detector.limit_side_len = "max", reduce * max(width, height)
    found = detector(image)
    return [] if found.boxes is None else list(found.boxes)


def _find_inked(detector: Any, image: Image) -> list[Quad]:
    """The same, looked for where the ink is."""
    import numpy as np

    part = _inked(image)
    if part is None:
        return []
    rows, columns = part
    corner = np.array((columns.start, rows.start), np.float32)
    return [quad + corner for quad in _find(detector, image[rows, columns])]


def _inked(image: Image) -> tuple[slice, slice] | None:
    """Rows and columns that hold all the ink there is; None where that is most of the page."""
    import cv2

    from hunyuan_ocr.documents.ink import ink_box

    box = ink_box(cv2.cvtColor(image, cv2.COLOR_BGR2GRAY))
    if box is None:
        return None
    height, width = image.shape[:2]
    left, top = (max(0, side - _INKED_MARGIN_PX) for side in box[:2])
    right, bottom = (side + _INKED_MARGIN_PX for side in box[2:])
    right, bottom = min(right, width), min(bottom, height)
    if (right - left) * (bottom - top) > _INKED_SHARE_MAX * width * height:
        return None
    return slice(top, bottom), slice(left, right)


def _crop(image: Image, quad: Quad) -> Image:
    """The text of a quad made level; text that runs downwards is turned to run to the right."""
    import cv2
    import numpy as np

    width = max(1, round(float(np.linalg.norm(quad[0] - quad[1]))))
    height = max(1, round(float(np.linalg.norm(quad[0] - quad[3]))))
    corners = np.array([(0, 0), (width, 0), (width, height), (0, height)], np.float32)
    turn = cv2.getPerspectiveTransform(quad.astype(np.float32), corners)
    crop = cv2.warpPerspective(
        image, turn, (width, height), flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE
    )
    if height >= RUNS_DOWN * width:
        crop = cv2.rotate(crop, cv2.ROTATE_90_COUNTERCLOCKWISE)
    return crop
