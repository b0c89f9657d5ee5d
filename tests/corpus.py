"""Pages drawn from a seed, with what is written on them and where: the ground truth of OCR.

Every page comes from the fixtures beside this file alone, so it is the same on every machine
with the same Pillow. Text is drawn as a person would set it; nothing is left out because an
engine finds it hard.
"""

from __future__ import annotations

import random
import string
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice

from PIL import Image, ImageDraw
from rapidfuzz.distance import Levenshtein

from tests.paper import FIXTURES, Box, Font, Sheet, blank, font, noisy, photographed, skewed

CLEAN_KINDS = ("zh", "en", "mixed", "invoice", "digits")
HARD_KINDS = ("small_print", "two_column", "table", "skew", "noise", "phone")
KINDS = CLEAN_KINDS + HARD_KINDS
LARGE_KIND = "a5"  # slow to read, so not among those that are always read

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


def _fill(sheet: Sheet, rng: random.Random, area: Box, text: Writing, face: Font) -> None:
    """Fill an area with lines of text from its top."""
    left, top, right, bottom = area
    pitch = face.size * rng.uniform(1.35, 1.9)
    rows = int((bottom - top) // pitch)
    for row, line in enumerate(islice(text(rng, right - left, face), rows)):
        sheet.write(left, top + row * pitch, line, face)


def _prose(
    rng: random.Random, text: Writing, fonts: tuple[str, ...], sizes: tuple[int, int] = (18, 34)
) -> Sheet:
    sheet = blank(rng.randrange(640, 1100, 4), rng.randrange(420, 800, 4))
    margin = rng.randint(24, 60)
    area = (margin, margin, sheet.image.width - margin, sheet.image.height - margin)
    _fill(sheet, rng, area, text, font(rng.choice(fonts), rng.randint(*sizes)))
    return sheet


def _any_prose(rng: random.Random, sizes: tuple[int, int] = (18, 34)) -> Sheet:
    if rng.random() < 0.5:
        return _prose(rng, _chinese, _CHINESE_FONTS, sizes)
    return _prose(rng, _english, _LATIN_FONTS, sizes)


def _invoice(rng: random.Random) -> Sheet:
    sheet = blank(900, rng.randrange(560, 700))
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


def _table(rng: random.Random) -> Sheet:
    columns, rows = rng.randint(3, 5), rng.randint(5, 10)
    name, size = rng.choice(_BOTH), rng.randint(16, 24)
    face, chinese = font(name, size), name in _CHINESE_FONTS
    cell_width, pitch = 180, int(size * rng.uniform(1.7, 2.3))
    sheet = blank(columns * cell_width + 80, rows * pitch + 80)
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


def _two_column(rng: random.Random) -> Sheet:
    sheet = blank(rng.randrange(960, 1200, 4), rng.randrange(560, 800, 4))
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


def _a5(rng: random.Random) -> Sheet:
    """Half a page at 300 dpi, printed in 5 to 9 points: what a smaller image loses first."""
    sheet = blank(1748, 2480)
    chinese = rng.random() < 0.5
    text: Writing = _chinese if chinese else _english
    name = rng.choice(_CHINESE_FONTS if chinese else _LATIN_FONTS)
    _fill(sheet, rng, (170, 200, 1578, 1240), text, font(name, rng.randint(21, 37)))
    return sheet


_DRAW: dict[str, Callable[[random.Random], Sheet]] = {
    "zh": lambda rng: _prose(rng, _chinese, _CHINESE_FONTS),
    "en": lambda rng: _prose(rng, _english, _LATIN_FONTS),
    "mixed": lambda rng: _prose(rng, _mixed, _CHINESE_FONTS),
    "invoice": _invoice,
    "digits": lambda rng: _prose(rng, _numbers, (*_LATIN_FONTS, "TestMono", "TestHeiA")),
    "small_print": lambda rng: _any_prose(rng, (10, 13)),
    "two_column": _two_column,
    "table": _table,
    "skew": lambda rng: skewed(_any_prose(rng), rng),
    "noise": lambda rng: noisy(_any_prose(rng), rng),
    "phone": lambda rng: photographed(_any_prose(rng, (22, 36)), rng),
    LARGE_KIND: _a5,
}
