"""Texts of all scripts in a real Chromium: what several tokens write looks like what was written."""

import io
import random
import re
import unicodedata
from typing import Any

import pytest
from PIL import Image, ImageChops

from tests.helpers.race_pages import TEXT, opened, race_over, words_of
from tests.helpers.races import WRONG, a_race, steps_of

pytestmark = pytest.mark.browser
TEXTS = {
    "Hindi": "क्षत्रिय और स्त्री की कहानी: राजा ने कहा, “मैं नहीं जानता।”",
    "Bengali": "আমি বাংলায় গান গাই, কর্ম ও জ্ঞান",
    "Tamil": "தமிழ் மொழி இனிமையானது, கௌரவம்",
    "Thai": "ภาษาไทยน้ำหนึ่งใจเดียวกัน ที่นี่",
    "Khmer": "ភាសាខ្មែរ ស្ត្រី និងក្មេង",
    "Burmese": "မြန်မာဘာသာစကား ကျေးဇူးတင်ပါတယ်",
    "Arabic": "الجواب: القدس (Jerusalem) هي عاصمة، مُحَمَّدٌ 42.\nEnglish first, ثم العربية.",
    "Persian": "می\u200cخواهم کتاب\u200cهای تازه بخوانم",
    "Hebrew": "שָׁלוֹם עוֹלָם (world) 3.14!",
    "Japanese": unicodedata.normalize("NFD", "日本語のプログラムが、ばびぶべぼ。"),
    "Korean": unicodedata.normalize("NFD", "한국어 문장을 씁니다"),
    "Vietnamese": unicodedata.normalize("NFD", "Tiếng Việt được viết rõ ràng"),
    "pictures": "👩‍💻 🏴󠁧󠁢󠁥󠁮󠁧󠁿 🇩🇪🇫🇷 👍🏽 1️⃣ ❤️‍🔥 👨‍👩‍👧‍👦",
}
# What no lane shows: seams, marks, guesses. Then only the letters and their places remain.
BARE = """.pf { --step-seam: transparent !important } .pf .pf-rejected, .pf .pf-aside { display: none !important }
.pf .pf-token { background: none !important; border-color: transparent !important }
.pf .pf-newline::before, .pf .pf-empty::before { display: none !important } .pf .pf-text { height: 300px !important }"""
WHOLE = """text => document.querySelectorAll('.pf-text[role]').forEach(box => box.replaceChildren(text))"""
SPLIT = """() => [...document.querySelectorAll('.pf-text[role]')].flatMap(box => {
    const nodes = [...box.querySelectorAll('.pf-token:not(.pf-rejected)')].map(node => node.textContent);
    const text = nodes.join(''), at = [...new Intl.Segmenter().segment(text)].map(({ index }) => index);
    let sum = 0;
    return nodes.map(node => sum += node.length).filter(end => end < text.length && !at.includes(end)); })"""


def pieces(text: str, seed: int) -> list[str]:
    """The text in tokens as a tokenizer of bytes may cut it: within words and characters."""
    rng, out = random.Random(seed), list[str]()
    while text:
        size = rng.choice((1, 1, 2, 3, 5))
        out, text = [*out, text[:size]], text[size:]
    return out


def pictures(page: Any) -> list[Any]:
    boxes = (page.locator(f"[data-ref={lane}Text]") for lane in ("left", "right"))
    return [Image.open(io.BytesIO(box.screenshot())).convert("L") for box in boxes]


def num_unlike(these: list[Any], those: list[Any]) -> list[int]:
    """How many pixels of each lane differ by a quarter of the way from black to white: not a glyph moved by less."""
    return [sum(ImageChops.difference(a, b).histogram()[64:]) for a, b in zip(these, those, strict=True)]


@pytest.mark.parametrize("script", TEXTS)
def test_letters_are_whole_and_alike_with_and_without_marks(page: Any, script: str) -> None:
    """A seam in a character draws a dotted circle, bold type another letter; half a paragraph runs the other way."""
    page.add_style_tag(content=BARE)
    recorded = race_over(pieces(TEXTS[script], 1), 1, hit=0.6)
    opened(page, recorded)
    assert page.evaluate(SPLIT) == []
    marked, _, bare = pictures(page), page.click("[data-ref=marks]"), pictures(page)
    page.evaluate(WHOLE, "".join("".join(step["pieces"]) for step in steps_of(recorded, "speculative")))
    whole = pictures(page)
    assert num_unlike(marked, whole) == num_unlike(bare, whole) == [0, 0]


def test_each_paragraph_runs_as_its_letters_do(page: Any) -> None:
    """A reader of Arabic would start in the middle of the sentence; a count of guesses would read 4+."""
    opened(page, race_over(pieces("قال: لا (no).\nno, لا.", 1), hit=0.3))
    first, second = page.evaluate(
        """() => { const box = document.querySelector('[data-ref=leftText]'), { left, right } =
            box.getBoundingClientRect(), all = [...box.querySelectorAll('.pf-token')].map(node =>
                [node.textContent, node.getBoundingClientRect()]);
            return [right - Math.max(...all.filter(([text]) => /[قال]/.test(text)).map(([, at]) => at.right)),
                Math.min(...all.map(([, at]) => at.left)) - left]; }"""
    )
    assert 0 < first < 20 and 0 < second < 20


def test_a_number_with_a_dropped_digit_runs_to_the_right(page: Any) -> None:
    """In Hebrew or Arabic 1,250 was read as 50,21 as soon as a digit between was a wrong guess."""
    texts = dict(enumerate(["שלום", " ", *"1234567,89123,456789"], 10))
    rows = [(0, 0), (0, 0), *[(3, 1)] * 10]
    opened(page, a_race(rows, token_ids=list(texts), pieces=texts | {WRONG: "0"}))
    digits = page.locator("[data-ref=rightText] .pf-token", has_text=re.compile(r"[\d,]"))
    places = digits.evaluate_all("all => all.map(node => node.getBoundingClientRect().left)")
    assert page.locator("[data-ref=rightText] .pf-rejected").count() == 20 and places == sorted(places)


def test_a_translator_leaves_what_a_model_or_a_person_wrote(page: Any) -> None:
    """Texts that no model wrote, under "Identical"; commands that no shell knows."""
    opened(page, race_over(words_of(TEXT), hit=0.6))
    assert page.evaluate(
        """() => [...document.querySelectorAll('.pf-token, .pf-one-word, code, pre, textarea')].filter(node =>
            !node.closest('.pf-legend') && node.translate).map(node => node.outerHTML)"""
    ) == []  # fmt: skip


def test_the_key_that_ends_a_composition_starts_nothing(page: Any) -> None:
    """Whoever writes Japanese chooses a word with Enter: half a prompt would race, half a guess be checked."""
    opened(page, race_over(words_of(TEXT), hit=0.6))
    page.click("[data-ref=gameBegin]")
    page.fill("[data-ref=gameTyped]", "にほん")
    for key in ({"isComposing": True, "keyCode": 13}, {"isComposing": False, "keyCode": 229}):
        for name in ("Enter", "Escape"):
            page.dispatch_event("[data-ref=gameTyped]", "keydown", {**key, "key": name})
    assert page.input_value("[data-ref=gameTyped]") == "にほん" and page.is_visible("[data-ref=gameTyped]")
    page.dispatch_event("[data-ref=gameTyped]", "keydown", {"key": "Enter", "keyCode": 13})
    assert page.input_value("[data-ref=gameTyped]") == ""
