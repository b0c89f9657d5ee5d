"""Cut the fonts that tests draw with down to what the tests draw.

    python scripts/subset_fonts.py SYSTEM_FONT_FOLDER [OUTPUT_FOLDER]

Needs the Debian packages fonts-dejavu, fonts-liberation, fonts-wqy-microhei and
fonts-wqy-zenhei; the results are committed, so that nothing else needs them. The subsets are
renamed, as the licences of changed fonts demand.
"""

from __future__ import annotations

import string
import sys
from dataclasses import dataclass
from pathlib import Path

from fontTools.subset import Options, Subsetter
from fontTools.ttLib import TTFont

OUTPUT = Path(__file__).parents[1] / "tests" / "fixtures" / "fonts"
SIZE_LIMIT_BYTES = 4_000_000

ASCII = string.printable[:95]
LATIN = ASCII + "".join(map(chr, range(0xA0, 0x180))) + "–—‘’“”„†•…‰€™−×÷"
CJK_PUNCTUATION = "　、。〈〉《》「」『』【】〔〕！（），．：；？％＋－＝／～“”‘’—…·￥¥×°"
# The 3,755 most used characters: rows 16 to 55 of GB 2312.
GB2312_LEVEL_1 = "".join(
    bytes((row, cell)).decode("gb2312", "ignore")
    for row in range(0xB0, 0xD8)
    for cell in range(0xA1, 0xFF)
)
# Forms and invoices use these, though level 1 lacks them.
FORM_CHARACTERS = "零壹贰叁肆伍陆柒捌玖拾佰仟圆冀豫皖粤赣闽沪浙渝黔琼晟昊鑫淼玥怡婷圳馨"
CHINESE = ASCII + CJK_PUNCTUATION + GB2312_LEVEL_1 + FORM_CHARACTERS


@dataclass(frozen=True, slots=True)
class Cut:
    """One font: where it comes from (path, index in its collection) and what is kept of it."""

    source: str
    index: int
    name: str
    characters: str


CUTS = (
    Cut("dejavu/DejaVuSans.ttf", -1, "TestSans", LATIN),
    Cut("dejavu/DejaVuSansMono.ttf", -1, "TestMono", LATIN),
    Cut("liberation/LiberationSans-Regular.ttf", -1, "TestGrotesque", LATIN),
    Cut("liberation/LiberationSerif-Regular.ttf", -1, "TestSerif", LATIN),
    Cut("wqy/wqy-microhei.ttc", 0, "TestHeiA", CHINESE),
    Cut("wqy/wqy-zenhei.ttc", 0, "TestHeiB", CHINESE),
)


def cut(source: Path, output: Path, job: Cut) -> int:
    """Write the subset and return its size in bytes."""
    options = Options()
    options.hinting = False
    options.layout_features = ["kern", "liga"]
    options.name_IDs = [0, 13, 14]  # copyright and licence stay, names go
    options.drop_tables += ["EBDT", "EBLC", "EBSC", "FFTM", "DSIG", "vhea", "vmtx"]
    font = TTFont(source / job.source, fontNumber=job.index, recalcTimestamp=False)
    subsetter = Subsetter(options)
    subsetter.populate(text=job.characters)
    subsetter.subset(font)
    for name_id, value in ((1, job.name), (2, "Regular"), (4, job.name), (6, job.name)):
        font["name"].setName(value, name_id, 3, 1, 0x409)
    path = output / f"{job.name}.ttf"
    font.save(path)
    return path.stat().st_size


def main() -> None:
    source = Path(sys.argv[1])
    output = Path(sys.argv[2]) if len(sys.argv) > 2 else OUTPUT
    output.mkdir(parents=True, exist_ok=True)
    sizes = {job.name: cut(source, output, job) for job in CUTS}
    for name, size in sizes.items():
        print(f"{name}.ttf\t{size:,} bytes")
    if sum(sizes.values()) > SIZE_LIMIT_BYTES:
        raise SystemExit(f"the fonts exceed {SIZE_LIMIT_BYTES:,} bytes")


if __name__ == "__main__":
    main()
