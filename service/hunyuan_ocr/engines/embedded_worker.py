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
from hunyuan_ocr.engines.reading_order import Fragment, arrange
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
_MIN_CONFIDENCE = 0.5
_VERTICAL_RATIO = 2.0


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
    quads = _detect(_models.detector, image)
    if not quads:
        return []
    crops = [_crop(image, quad) for quad in quads]
    read = _models.recognizer(TextRecInput(img=crops, return_word_box=True))
    fragments = []
    for quad, crop, text, score, words in zip(
        quads, crops, read.txts, read.scores, read.word_results, strict=True
    ):
        if text.strip() and score >= _MIN_CONFIDENCE:
            characters = list(chain.from_iterable(words.words))
            columns = list(chain.from_iterable(words.word_cols))
            polygon = tuple((float(x), float(y)) for x, y in quad)
            spaced = restore_spaces(text.strip(), characters, columns, crop)
            fragments.append(Fragment(spaced, polygon))
    return arrange(fragments, join_cells=join_cells)


def _detect(detector: Any, image: Image) -> list[Quad]:
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
    if height >= _VERTICAL_RATIO * width:
        crop = cv2.rotate(crop, cv2.ROTATE_90_COUNTERCLOCKWISE)
    return crop
