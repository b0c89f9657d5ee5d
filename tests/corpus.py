"""Pages drawn from a seed, with what is written on them and where: the ground truth of OCR.

Every page comes from the fixtures beside this file alone, so it is the same on every machine
with the same Pillow. Text is drawn as a person would set it; nothing is left out because an
engine finds it hard.
"""

from __future__ import annotations

import io
import random
import string
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont
from rapidfuzz.distance import Levenshtein

FIXTURES = Path(__file__).parent / "fixtures"
CLEAN_KINDS = ("zh", "en", "mixed", "invoice", "digits")
HARD_KINDS = ("small_print", "two_column", "table", "skew", "noise", "phone")
KINDS = CLEAN_KINDS + HARD_KINDS

Box = tuple[float, float, float, float]
Font = ImageFont.FreeTypeFont

_CHINESE_FONTS = ("TestHeiA", "TestHeiB")
_LATIN_FONTS = ("TestSans", "TestGrotesque", "TestSerif")
_BOTH = (*_CHINESE_FONTS, *_LATIN_FONTS)


@dataclass(frozen=True, slots=True)
class CorpusPage:
    """One page. `lines` are (text, (x_min, y_min, x_max, y_max) in pixels) in reading order,
    a row of a table being one line; `text` is those lines joined by newlines."""

    kind: str
    image: Image.Image
    text: str
    lines: list[tuple[str, Box]]


def pages(kind: str, count: int, seed: int) -> Iterator[CorpusPage]:
    """Yield `count` pages of a kind; page i depends only on `kind`, `seed` and i."""
    for index in range(count):
        sheet = _DRAW[kind](random.Random(f"{kind}/{seed}/{index}"))
        text = "\n".join(line for line, _ in sheet.lines)
        yield CorpusPage(kind, sheet.image, text, sheet.lines)


def edits(expected: str, got: str, *, strict: bool = False) -> tuple[int, int]:
    """(characters to insert, delete or replace; characters expected).

    Strict compares code points as they are. Otherwise both sides are brought to NFKC, so that
    `，` and `,` or `１` and `1` count as equal, and every run of whitespace is one space, so
    that a line broken elsewhere is no error; a space missing or added between words still is.
    """
    if not strict:
        expected, got = _normalise(expected), _normalise(got)
    return Levenshtein.distance(expected, got), len(expected)


def character_error_rate(expected: str, got: str, *, strict: bool = False) -> float:
    """`edits` per character expected; 0 is perfect, and it can exceed 1."""
    wrong, length = edits(expected, got, strict=strict)
    return wrong / max(1, length)


def _normalise(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).split())


@dataclass(slots=True)
class _Sheet:
    """White paper and what has been written on it."""

    image: Image.Image
    lines: list[tuple[str, Box]] = field(default_factory=list)

    def write(self, x: float, y: float, text: str, font: Font, ink: int = 0) -> Box:
        """Write a line with its upper left corner at (x, y) and note where its ink is."""
        box = self.draw(x, y, text, font, ink)
        self.lines.append((text, box))
        return box

    def write_row(self, xs: list[float], y: float, cells: list[str], font: Font) -> None:
        """Write cells at `xs`; together they are one line."""
        boxes = [self.draw(x, y, cell, font) for x, cell in zip(xs, cells, strict=True)]
        lefts, tops, rights, ends = zip(*boxes, strict=True)
        self.lines.append((" ".join(cells), (min(lefts), min(tops), max(rights), max(ends))))

    def draw(self, x: float, y: float, text: str, font: Font, ink: int = 0) -> Box:
        pen = ImageDraw.Draw(self.image)
        pen.text((x, y), text, fill=(ink, ink, ink), font=font)
        return pen.textbbox((x, y), text, font=font)


def _sheet(width: int, height: int) -> _Sheet:
    return _Sheet(Image.new("RGB", (width, height), "white"))


@cache
def font(name: str, size_px: int) -> Font:
    """A font of the fixtures at a size in pixels."""
    return ImageFont.truetype(FIXTURES / "fonts" / f"{name}.ttf", size_px)


@cache
def _fixture_lines(name: str) -> tuple[str, ...]:
    return tuple((FIXTURES / name).read_text(encoding="utf-8").split("\n")[:-1])


# What is written


def _chinese(rng: random.Random, width: float, face: Font) -> Iterator[str]:
    """Lines of Chinese sentences, each as long as fits in `width` pixels."""
    rest = ""
    while True:
        while face.getlength(rest) <= width:
            rest += rng.choice(_fixture_lines("sentences_zh.txt"))
        end = next(n for n in range(len(rest), 0, -1) if face.getlength(rest[:n]) <= width)
        yield rest[:end]
        rest = rest[end:]


def _english(rng: random.Random, width: float, face: Font) -> Iterator[str]:
    """Lines of English words in sentences, each as long as fits in `width` pixels."""
    line, fresh = "", True
    while True:
        word = rng.choice(_fixture_lines("words_en.txt"))
        word = word.capitalize() if fresh or rng.random() < 0.05 else word
        mark = rng.choices(["", ",", ".", ";", "?", "!"], [80, 8, 8, 1, 1, 1])[0]
        fresh = mark in {".", "?", "!"}
        longer = f"{line} {word}{mark}".strip()
        if face.getlength(longer) > width:
            yield line
            longer = word + mark
        line = longer


def _mixed(rng: random.Random, width: float, face: Font) -> Iterator[str]:
    """Chinese lines that hold English words, names and numbers."""
    while True:
        zh = rng.choice(_fixture_lines("sentences_zh.txt"))
        words = " ".join(rng.sample(_fixture_lines("words_en.txt"), rng.randint(1, 3)))
        inset = rng.choice([words.title(), words.upper(), _amount(rng), _code(rng), _date(rng)])
        space = rng.choice(["", " "])
        cut = rng.randrange(1, len(zh))
        line = zh[:cut] + space + inset + space + zh[cut:]
        if face.getlength(line) <= width:
            yield line


def _amount(rng: random.Random) -> str:
    return f"{rng.uniform(1, 10 ** rng.randint(1, 6)):,.2f}"


def _date(rng: random.Random) -> str:
    year, month, day = rng.randint(1990, 2039), rng.randint(1, 12), rng.randint(1, 28)
    form = rng.choice(["{}-{:02}-{:02}", "{}/{:02}/{:02}", "{}.{:02}.{:02}", "{}年{}月{}日"])
    return form.format(year, month, day)


def _date_in_digits(rng: random.Random) -> str:
    return _date(rng).translate(str.maketrans("年月", "--")).removesuffix("日")


def _code(rng: random.Random) -> str:
    letters = "".join(rng.choices("ABCDEFGHJKLMNPQRSTUVWXYZ", k=rng.randint(0, 3)))
    return letters + "".join(rng.choices(string.digits, k=rng.randint(4, 14)))


def _phone_number(rng: random.Random) -> str:
    return "1" + "".join(rng.choices(string.digits, k=10))


def _numbers(rng: random.Random, width: float, face: Font) -> Iterator[str]:
    """Lines of dates, amounts, codes, phone numbers, percentages and times."""
    kinds: list[Callable[[random.Random], str]] = [
        _amount,
        _code,
        _phone_number,
        _date_in_digits,
        lambda r: f"{r.randint(0, 23):02}:{r.randint(0, 59):02}:{r.randint(0, 59):02}",
        lambda r: f"{r.uniform(0, 100):.1f}%",
        lambda r: f"+86-{r.randint(10, 999)}-{r.randint(10**6, 10**8)}",
    ]
    while True:
        line = " ".join(rng.choice(kinds)(rng) for _ in range(rng.randint(1, 4)))
        if face.getlength(line) <= width:
            yield line


Writing = Callable[[random.Random, float, Font], Iterator[str]]


def _fill(sheet: _Sheet, rng: random.Random, area: Box, text: Writing, face: Font) -> None:
    """Fill an area with lines of text from its top."""
    left, top, right, bottom = area
    pitch = face.size * rng.uniform(1.35, 1.9)
    rows = int((bottom - top) // pitch)
    for row, line in enumerate(islice(text(rng, right - left, face), rows)):
        sheet.write(left, top + row * pitch, line, face)


def _prose(
    rng: random.Random, text: Writing, fonts: tuple[str, ...], sizes: tuple[int, int] = (18, 34)
) -> _Sheet:
    sheet = _sheet(rng.randrange(640, 1100, 4), rng.randrange(420, 800, 4))
    margin = rng.randint(24, 60)
    area = (margin, margin, sheet.image.width - margin, sheet.image.height - margin)
    _fill(sheet, rng, area, text, font(rng.choice(fonts), rng.randint(*sizes)))
    return sheet


def _any_prose(rng: random.Random, sizes: tuple[int, int] = (18, 34)) -> _Sheet:
    if rng.random() < 0.5:
        return _prose(rng, _chinese, _CHINESE_FONTS, sizes)
    return _prose(rng, _english, _LATIN_FONTS, sizes)


def _invoice(rng: random.Random) -> _Sheet:
    sheet = _sheet(900, rng.randrange(560, 700))
    name, size = rng.choice(_CHINESE_FONTS), rng.randint(18, 24)
    face, title = font(name, size), font(name, size + 12)
    heading = rng.choice(["增值税普通发票", "销售清单", "电子发票（普通发票）", "收据"])
    sheet.write(450 - title.getlength(heading) / 2, 24, heading, title)
    pitch, y = size * 1.8, 40 + size * 2.6
    pairs = [
        [f"发票号码：{_code(rng)}", f"开票日期：{_date(rng)}"],
        ["购买方：东方科技有限公司", f"电话：{_phone_number(rng)}"],
        [f"地址：上海市中山路{rng.randint(1, 999)}号", f"订单号：{_code(rng)}"],
    ]
    for pair in pairs:
        sheet.write_row([40, 500], y, pair, face)
        y += pitch
    columns = [40.0, 330.0, 450.0, 580.0, 740.0]
    sheet.write_row(columns, y, ["货物名称", "单位", "数量", "单价", "金额"], face)
    total = 0.0
    for _ in range(rng.randint(3, 6)):
        y += pitch
        goods = rng.choice(["不锈钢水管", "办公用纸", "电脑显示器", "玻璃水杯", "蓝色圆珠笔"])
        count, price = rng.randint(1, 99), rng.uniform(1, 900)
        total += count * price
        cells = [goods, rng.choice("件箱个套"), f"{count}", f"{price:.2f}", f"{count * price:.2f}"]
        sheet.write_row(columns, y, cells, face)
    sheet.write(40, y + pitch, f"价税合计：￥{total:.2f}", face)
    sheet.write_row(
        [40, 330, 600], y + 2 * pitch, ["收款人：王明", "复核：李红", "开票人：张华"], face
    )
    return sheet


def _table(rng: random.Random) -> _Sheet:
    columns, rows = rng.randint(3, 5), rng.randint(5, 10)
    name, size = rng.choice(_BOTH), rng.randint(16, 24)
    face, chinese = font(name, size), name in _CHINESE_FONTS
    cell_width, pitch = 180, int(size * rng.uniform(1.7, 2.3))
    sheet = _sheet(columns * cell_width + 80, rows * pitch + 80)
    words = ["数量", "单价", "金额", "日期", "名称", "规格", "单位", "备注", "税率", "编号"]
    pen = ImageDraw.Draw(sheet.image)
    for row in range(rows):
        cells = []
        for _ in range(columns):
            word = rng.choice(words) if chinese else rng.choice(_fixture_lines("words_en.txt"))
            number = rng.choice([_amount, _code])(rng)[:10]
            cells.append(word if row == 0 or rng.random() < 0.4 else number)
        y = 40 + row * pitch
        sheet.write_row(
            [50.0 + i * cell_width for i in range(columns)], y + size * 0.3, cells, face
        )
        pen.line((40, y, 40 + columns * cell_width, y), fill="black")
    pen.line((40, 40 + rows * pitch, 40 + columns * cell_width, 40 + rows * pitch), fill="black")
    for column in range(columns + 1):
        x = 40 + column * cell_width
        pen.line((x, 40, x, 40 + rows * pitch), fill="black")
    return sheet


def _two_column(rng: random.Random) -> _Sheet:
    sheet = _sheet(rng.randrange(960, 1200, 4), rng.randrange(560, 800, 4))
    chinese = rng.random() < 0.5
    text: Writing = _chinese if chinese else _english
    name = rng.choice(_CHINESE_FONTS if chinese else _LATIN_FONTS)
    face, title = font(name, rng.randint(16, 22)), font(name, 32)
    width, height = sheet.image.size
    top = 40.0
    if rng.random() < 0.6:
        sheet.write(60, 30, next(text(rng, width - 120, title)), title)
        top = 100.0
    gutter = rng.randint(36, 70)
    for left in (40.0, width / 2 + gutter / 2):
        right = left + width / 2 - 40 - gutter / 2
        _fill(sheet, rng, (left, top, right, height - 30), text, face)
    return sheet


# What happens to paper


def _skew(rng: random.Random) -> _Sheet:
    sheet = _any_prose(rng)
    angle = np.deg2rad(rng.choice([-1, 1]) * rng.uniform(1, 6))
    width, height = sheet.image.size
    cos, sin = np.cos(angle), np.sin(angle)
    new_w = int(width * cos + height * abs(sin)) + 1
    new_h = int(height * cos + width * abs(sin)) + 1
    forward = np.array(
        [
            [cos, -sin, new_w / 2 - cos * width / 2 + sin * height / 2],
            [sin, cos, new_h / 2 - sin * width / 2 - cos * height / 2],
            [0, 0, 1],
        ]
    )
    return _project(sheet, forward, (new_w, new_h), (255, 255, 255))


def _project(
    sheet: _Sheet, forward: np.ndarray, size: tuple[int, int], paper: tuple[int, int, int]
) -> _Sheet:
    """Move the page and its boxes by a 3x3 homography from old pixels to new ones."""
    back = np.linalg.inv(forward)
    back /= back[2, 2]
    image = sheet.image.transform(
        size,
        Image.Transform.PERSPECTIVE,
        [float(value) for value in back.flatten()[:8]],
        Image.Resampling.BICUBIC,
        fillcolor=paper,
    )
    moved = []
    for text, (left, top, right, end) in sheet.lines:
        corners = [(left, top, 1), (right, top, 1), (right, end, 1), (left, end, 1)]
        points = np.array(corners, float) @ forward.T
        xs, ys = points[:, 0] / points[:, 2], points[:, 1] / points[:, 2]
        moved.append((text, (float(xs.min()), float(ys.min()), float(xs.max()), float(ys.max()))))
    return _Sheet(image, moved)


def _noise(rng: random.Random) -> _Sheet:
    sheet = _any_prose(rng)
    pixels = np.asarray(sheet.image, np.float32)
    dice = np.random.default_rng(rng.getrandbits(32))
    pixels = 255 - (255 - pixels) * np.float32(rng.uniform(0.5, 0.9))  # grey ink
    pixels += dice.normal(0, rng.uniform(8, 30), pixels.shape).astype(np.float32)
    specks = dice.random(pixels.shape[:2])
    pixels[specks < 0.004] = 0
    pixels[specks > 0.996] = 255
    return _Sheet(Image.fromarray(pixels.clip(0, 255).astype(np.uint8)), sheet.lines)


def _phone(rng: random.Random) -> _Sheet:
    sheet = _any_prose(rng, (22, 36))
    width, height = sheet.image.size
    corners = [(0, 0), (width, 0), (width, height), (0, height)]
    shift = 0.04 * min(width, height)
    seen = [
        (x + 40 + rng.uniform(-shift, shift), y + 40 + rng.uniform(-shift, shift))
        for x, y in corners
    ]
    sheet = _project(sheet, _homography(corners, seen), (width + 80, height + 80), (90, 80, 70))
    image = sheet.image.filter(ImageFilter.GaussianBlur(rng.uniform(0.4, 1.1)))
    light = np.linspace(rng.uniform(0.6, 1), rng.uniform(0.6, 1), image.width)[None, :, None]
    pixels = np.asarray(image, np.float32) * light
    buffer = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).save(buffer, "JPEG", quality=rng.randint(40, 80))
    return _Sheet(Image.open(buffer).convert("RGB"), sheet.lines)


def _homography(old: list[tuple[int, int]], new: list[tuple[float, float]]) -> np.ndarray:
    """The 3x3 matrix that takes four points to four others."""
    rows, goal = [], []
    for (x, y), (u, v) in zip(old, new, strict=True):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
        goal += [u, v]
    solved = np.linalg.solve(np.array(rows, float), np.array(goal, float))
    return np.append(solved, 1.0).reshape(3, 3)


_DRAW: dict[str, Callable[[random.Random], _Sheet]] = {
    "zh": lambda rng: _prose(rng, _chinese, _CHINESE_FONTS),
    "en": lambda rng: _prose(rng, _english, _LATIN_FONTS),
    "mixed": lambda rng: _prose(rng, _mixed, _CHINESE_FONTS),
    "invoice": _invoice,
    "digits": lambda rng: _prose(rng, _numbers, (*_LATIN_FONTS, "TestMono", "TestHeiA")),
    "small_print": lambda rng: _any_prose(rng, (10, 13)),
    "two_column": _two_column,
    "table": _table,
    "skew": _skew,
    "noise": _noise,
    "phone": _phone,
}
