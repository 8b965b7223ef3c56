"""Texts in twenty ways of writing: sentences, and characters drawn from the blocks of Unicode that each is written in."""

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Script:
    """`blocks` are ranges of code points, ends included; `joiner` stands between drawn characters now and then."""

    name: str
    sentence: str
    blocks: tuple[tuple[int, int], ...]
    joiner: str = " "


SCRIPTS = (
    Script("Latin", "A page holds sixteen tokens, no more; don't ask it's why.", ((0x21, 0x7E), (0xC0, 0x17E))),
    Script("combining marks", "ne\u0301e a\u0300 Se\u0300te, o\u0328\u0304 n\u0303", ((0x61, 0x7A), (0x300, 0x36F))),
    Script("Vietnamese", "Mỗi trang giữ mười sáu từ trong bộ nhớ.", ((0x1EA0, 0x1EF9), (0x61, 0x7A))),
    Script("Cyrillic", "Страница хранит шестнадцать слов, и ни словом больше.", ((0x410, 0x45F),)),
    Script("Greek", "Μια σελίδα κρατά δεκαέξι λέξεις στη μνήμη.", ((0x391, 0x3A1), (0x3A3, 0x3CE), (0x1F00, 0x1F15))),
    Script("Armenian", "Էջը պահում է տասնվեց բառ։", ((0x531, 0x556), (0x561, 0x587))),
    Script("Georgian", "გვერდი ინახავს თექვსმეტ სიტყვას.", ((0x10D0, 0x10FA),)),
    Script("Hebrew", "הדף שומר שש עשרה מילים, ולא יותר.", ((0x5D0, 0x5EA), (0x5B0, 0x5BD))),
    Script("Arabic", "تحفظ الصفحة ستَّ عشرةَ كلمةً في الذاكرة.", ((0x621, 0x64A), (0x64B, 0x652), (0x660, 0x669))),
    Script("Devanagari", "पृष्ठ में सोलह शब्द रहते हैं।", ((0x904, 0x939), (0x93E, 0x94D), (0x966, 0x96F)), "\u200d"),
    Script("Bengali", "একটি পৃষ্ঠায় ষোলটি শব্দ থাকে।", ((0x985, 0x98C), (0x995, 0x9A8), (0x9BE, 0x9C4)), "\u200c"),
    Script("Tamil", "ஒரு பக்கத்தில் பதினாறு சொற்கள் உள்ளன.", ((0xB85, 0xB8A), (0xBAE, 0xBB9), (0xBBE, 0xBC2))),
    Script("Thai", "หนึ่งหน้ามีสิบหกคำ และไม่มากกว่านั้น", ((0xE01, 0xE3A), (0xE40, 0xE4E)), "\u200b"),
    Script("Tibetan", "ཤོག་ལྷེ་གཅིག་ལ་ཚིག་བཅུ་དྲུག་ཡོད།", ((0xF40, 0xF47), (0xF49, 0xF6C), (0xF71, 0xF7D)), "\u0f0b"),
    Script("Ethiopic", "አንድ ገጽ አሥራ ስድስት ቃላት ይይዛል።", ((0x1200, 0x1248), (0x12A0, 0x12B0)), "\u1361"),
    Script(
        "Han", "一页有十六个词，请介绍分页缓存的原理。", ((0x4E00, 0x9FFF), (0x3400, 0x3410), (0x20000, 0x20020)), "，"
    ),
    Script("Kana", "ページには十六の単語が入ります。カタカナも。", ((0x3041, 0x3096), (0x30A1, 0x30FA)), "ー"),
    Script(
        "Hangul", "삼겹살 한 쪽에는 열여섯 낱말이 들어간다.", ((0xAC00, 0xD7A3), (0x1100, 0x1112), (0x1161, 0x1175))
    ),
    Script(
        "emoji", "👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 ❤️ 🌶 end", ((0x1F300, 0x1F5FF), (0x1F600, 0x1F64F), (0x1F1E6, 0x1F1FF)), "\u200d"
    ),
    Script(
        "code and symbols",
        "def f(x):\n\treturn  x**2 + ∑∫ # 𝔘𝔫𝔦 … “q”\r\n",
        ((0x20, 0x7E), (0x2190, 0x22FF), (0x1D400, 0x1D454)),
        "\n",
    ),
)


def sample(draw: random.Random, script: Script, most_characters: int) -> str:
    """A text in this script, of one character at least: a part of the sentence, drawn characters, or both."""
    kind = draw.randrange(3)
    sentence = drawn = ""
    if kind != 1:
        start = draw.randrange(len(script.sentence))
        sentence = script.sentence[start : start + draw.randint(1, most_characters)]
    if kind != 0:
        drawn = "".join(map(chr, (code_point(draw, script) for _ in range(draw.randint(1, most_characters)))))
        place = draw.randrange(len(drawn) + 1)
        drawn = drawn[:place] + draw.choice(("", "", " ", "  ", script.joiner)) + drawn[place:]
    return (sentence + drawn)[: most_characters + 2]


def code_point(draw: random.Random, script: Script) -> int:
    first, last = draw.choice(script.blocks)
    return draw.randint(first, last)


def corpus(draw: random.Random) -> list[str]:
    """To train vocabularies on: each sentence often enough to be learnt, and a few characters of each block."""
    texts = [script.sentence for script in SCRIPTS for _ in range(8)]
    for script in SCRIPTS:
        texts += ["".join(chr(code_point(draw, script)) for _ in range(12)) for _ in range(12)]
    return texts
