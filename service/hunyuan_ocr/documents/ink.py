"""Is there anything on a page? A test of its pixels that would rather find ink than miss it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

# Grey levels, 8 bits each, as (rows, columns).
Grey = NDArray[Any]

# The paper is the median of this many pixels around, in one row and column of four.
_NEIGHBOURHOOD_PX: Final = 21
_SPARSE: Final = 4
_SMOOTHING: Final = np.array([0.25, 0.5, 0.25], np.float32)
# Below this, in grey levels of the smoothed page, lie the steps that lossy compression leaves.
_CONTRAST_MIN: Final = 5.0
# Normal noise exceeds so many of its standard deviations once in 10^10 pixels.
_NOISE_FACTOR: Final = 6.5
_MEDIAN_OF_NORMAL: Final = 0.6745
# A speck is a pixel or two, smoothed; a page strewn with them holds clumps of specks, too.
_SPECK_SIDE_PX: Final = 4
_STREWN_PER_MEGAPIXEL: Final = 200
_CLUMP_SIDE_PX: Final = 16
# A dot is told from grain by standing out more than grain may, or by its size.
_SURE: Final = 1.4
_SURE_AREA_PX: Final = 4
_GRAINY: Final = 3.0
_SURE_OF_GRAIN: Final = 3.0
_MIDDLE_PX: Final = 200
# The lid of a scanner shows as a strip along the border.
_BORDER_SHARE: Final = 0.08
_STRIP_SHARE: Final = 0.2
_HALO_PX: Final = 16  # as far as lossy compression carries a sharp edge
# Punched holes: two or more discs of one size, near one border.
_HOLE_SHARES: Final = (0.01, 0.045)
_HOLE_MARGIN_SHARE: Final = 0.1
_DISC_FILL: Final = (0.68, 0.9)  # a quarter of pi, as pixels and blur have it


def contrast(grey: Grey) -> NDArray[np.float32]:
    """How much each pixel, smoothed, differs from the paper around it, in grey levels.

    Shadows and gradients are paper; ink may be darker or lighter.
    """
    height, width = grey.shape
    few = np.ascontiguousarray(grey[::_SPARSE, ::_SPARSE])
    paper = cv2.resize(cv2.medianBlur(few, _NEIGHBOURHOOD_PX), (width, height))
    smooth = cv2.sepFilter2D(grey, cv2.CV_32F, _SMOOTHING, _SMOOTHING)
    return np.asarray(cv2.absdiff(smooth, paper.astype(np.float32)), np.float32)


def noise(found: NDArray[np.float32]) -> float:
    """The standard deviation of the paper's own `contrast`."""
    return float(np.median(found[::_SPARSE, ::_SPARSE])) / _MEDIAN_OF_NORMAL


def is_blank(image: Image.Image) -> bool:
    """Whether nothing is written or drawn on a page.

    Blank are uniform pages of any colour, and paper with grain, noise, specks, shadows, punched
    holes or the edge of a scanner's lid. Not blank is a page with a glyph of 6 pixels and 25
    grey levels on quiet paper, or a dot that one can see. Takes 20 to 30 ms for
    a blank megapixel, and 3 ms for a page of any size that is written on in the middle.
    """
    # Most pages are written on in the middle, where there is no edge and no hole to be told apart.
    middle = _pieces(_grey(_middle(image))).boxes
    if (middle[1:, 2:4] > _CLUMP_SIDE_PX).any():
        return False
    grey = _grey(image)
    found = _pieces(grey)
    labels, boxes = found.labels, found.boxes
    longer = boxes[:, 2:4].max(axis=1)
    is_ink = ~_of_the_scanner(labels, boxes)
    is_ink[0] = False
    small = longer <= _SPECK_SIDE_PX
    specks = int(np.count_nonzero(is_ink & small))
    if specks * 1e6 > _STREWN_PER_MEGAPIXEL * max(grey.size, 1_000_000):
        return not (is_ink & (longer > _CLUMP_SIDE_PX)).any()
    if (is_ink & ~small).any():
        return False
    ink = labels > 0
    peaks = np.zeros(len(boxes), np.float32)
    np.maximum.at(peaks, labels[ink], found.contrast[ink])
    if found.grain > _GRAINY:
        return not (is_ink & (peaks > _SURE_OF_GRAIN * found.threshold)).any()
    sure = (peaks > _SURE * found.threshold) | (boxes[:, 4] >= _SURE_AREA_PX)
    return not (is_ink & sure).any()


def ink_box(grey: Grey) -> tuple[int, int, int, int] | None:
    """The box (x_min, y_min, x_max, y_max) around all that is larger than a speck.

    None where there is no such thing.
    """
    found = _pieces(grey)
    is_ink = ~_of_the_scanner(found.labels, found.boxes)
    is_ink &= found.boxes[:, 2:4].max(axis=1) > _SPECK_SIDE_PX
    is_ink[0] = False
    if not is_ink.any():
        return None
    left, top, width, height = found.boxes[is_ink, :4].T
    return int(left.min()), int(top.min()), int((left + width).max()), int((top + height).max())


def _grey(image: Image.Image) -> Grey:
    return np.asarray(image.convert("L"))


def _middle(image: Image.Image) -> Image.Image:
    """At most a quarter of the page."""
    x, y = image.width // 2, image.height // 2
    half_x, half_y = (min(side // 4, _MIDDLE_PX) for side in image.size)
    return image.crop((x - half_x, y - half_y, x + half_x + 1, y + half_y + 1))


@dataclass(frozen=True, slots=True)
class _Pieces:
    """What stands out from the paper: which pixels, and (x, y, width, height, area) of each piece.

    Piece 0 is the paper. `grain` is the paper's own noise, `threshold` what ink exceeds.
    """

    contrast: NDArray[np.float32]
    labels: NDArray[Any]
    boxes: NDArray[Any]
    grain: float
    threshold: float


def _pieces(grey: Grey) -> _Pieces:
    found = contrast(grey)
    grain = noise(found)
    threshold = max(_CONTRAST_MIN, _NOISE_FACTOR * grain)
    ink = (found > threshold).astype(np.uint8)
    _, labels, boxes, _ = cv2.connectedComponentsWithStats(ink, connectivity=8)
    return _Pieces(found, labels, boxes, grain, threshold)


def _of_the_scanner(labels: NDArray[Any], boxes: NDArray[Any]) -> NDArray[np.bool_]:
    """Which pieces are strips along the border, punched holes, or what compression adds there."""
    found = _strips(labels, boxes) | _holes(boxes, labels.shape)
    if found.any():
        halo = cv2.dilate(found[labels].astype(np.uint8), np.ones((3, 3)), iterations=_HALO_PX)
        found |= ~_present(labels[halo == 0], len(boxes))
    return found


def _strips(labels: NDArray[Any], boxes: NDArray[Any]) -> NDArray[np.bool_]:
    """Pieces that lie along the border of the page and nowhere else."""
    height, width = labels.shape
    left, top, w, h = boxes[:, :4].T
    touches = (left == 0) | (top == 0) | (left + w == width) | (top + h == height)
    long = (w >= _STRIP_SHARE * width) | (h >= _STRIP_SHARE * height)
    found: NDArray[np.bool_] = touches & long
    if found.any():
        x, y = int(width * _BORDER_SHARE), int(height * _BORDER_SHARE)
        found &= ~_present(labels[y : height - y, x : width - x], len(boxes))
    return found


def _present(labels: NDArray[Any], pieces: int) -> NDArray[np.bool_]:
    """Which of so many pieces some of `labels` belong to."""
    present: NDArray[np.bool_] = np.bincount(labels.ravel(), minlength=pieces) > 0
    return present


def _holes(boxes: NDArray[Any], shape: tuple[int, ...]) -> NDArray[np.bool_]:
    height, width = shape
    left, top, w, h, area = boxes.T
    smallest, largest = (share * max(height, width) for share in _HOLE_SHARES)
    size = np.maximum(w, h)
    fill = area / (w * h)
    disc = (size >= smallest) & (size <= largest) & (np.abs(w - h) <= 0.15 * size)
    disc &= (fill >= _DISC_FILL[0]) & (fill <= _DISC_FILL[1])
    margin_x, margin_y = _HOLE_MARGIN_SHARE * width, _HOLE_MARGIN_SHARE * height
    holes = np.zeros(len(boxes), bool)
    for side in (
        left + w <= margin_x,
        left >= width - margin_x,
        top + h <= margin_y,
        top >= height - margin_y,
    ):
        discs = disc & side
        if discs.sum() >= 2 and np.ptp(size[discs]) <= 0.15 * size[discs].max():
            holes |= discs
    return holes
