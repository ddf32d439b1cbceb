"""Size, names and words of the files in this repository."""

import re

import pytest

from arch.repository import CODE_SUFFIXES, ROOT, relative, text_files
from tools.linecount import HARD_LIMIT, count_lines, over_budget

BANNED_NAMES = {"base", "common", "handler", "helpers", "manager", "misc", "utils"}
LARGEST_FILE_BYTES = 500_000

# Each pattern with the reason why no file may contain it. Classes such as [i] keep this file clean.
FORBIDDEN = {
    r"(?<![\w.$}>])/(?:home|root|Users|wor[k]|far[m])/\w": "a path of one machine",
    r"//[\w.-]*(?:pyp[i]|pythonhoste[d]|npmj[s]|debi[a]n)\.": "the address of a package registry",
    r"\b(?:TOD[O]|FIXM[E]|XX[X]|HAC[K])\b(?!\(#\d+\))": "unfinished work without an issue",
    r"^<{7} |^>{7} ": "a merge conflict",
    r"-{4,}$|={4,}$|#{6,}": "a banner",
}
# A claim to run on the chip needs a report from one, and there is none. The same words in a
# sentence that denies, asks or conditions are no claim.
CLAIM = re.compile(
    r"\b(?:runs?|ran|running|works?|tested|verified|measured|trains?|trained|benchmarked)\b"
    r"[^.:;|]{0,30}?\bon (?:an? |the |real |actual |physical )*"
    r"(?:chips?|trainium\d?|trn[123]|neuroncores?|silicon|neuron hardware)\b",
    re.IGNORECASE,
)
NO_CLAIM = re.compile(
    r"\b(?:no|not|never|nothing|without|cannot|emulated|would|could|will|before|until|if|whether|"
    r"does|public|published|reported?|vendor|aws|modelled|predicted|later|then)\b|n't\b|\?",
    re.IGNORECASE,
)


def sentences(text: str) -> list[str]:
    """Split prose and comments into sentences, roughly; line breaks do not end one."""
    joined = re.sub(r"\n[ \t]*(?:#|//|\*|-|>)?[ \t]*(?=\S)", " ", text)
    return re.split(r"(?<=[.?!:])\s+|\n\s*\n", joined)


def claims(text: str) -> list[str]:
    """Find the sentences that say something runs on a chip."""
    return [part for part in sentences(text) if CLAIM.search(part) and not NO_CLAIM.search(part)]


def test_files_stay_within_the_line_budget() -> None:
    assert over_budget(count_lines(), HARD_LIMIT) == {}


def test_the_line_budget_notices_a_long_file() -> None:
    assert over_budget({"a.py": HARD_LIMIT, "b.py": HARD_LIMIT + 1}) == {"b.py": HARD_LIMIT + 1}


def test_no_file_has_a_name_that_says_nothing() -> None:
    found = [relative(path) for path in text_files() if path.stem in BANNED_NAMES]
    assert not found


def test_no_file_is_large() -> None:
    assert not [relative(p) for p in text_files() if p.stat().st_size > LARGEST_FILE_BYTES]


def test_code_is_ascii() -> None:
    found = [
        relative(path)
        for path in text_files()
        if path.suffix in CODE_SUFFIXES and not path.read_bytes().isascii()
    ]
    assert not found


@pytest.mark.parametrize("pattern", FORBIDDEN, ids=FORBIDDEN.values())
def test_no_file_contains(pattern: str) -> None:
    expression = re.compile(pattern, re.MULTILINE)
    found = []
    for path in text_files():
        if path.suffix == ".md" and FORBIDDEN[pattern] == "a banner":
            continue
        for match in expression.finditer(text := path.read_text(encoding="utf-8")):
            found.append(f"{relative(path)}:{text.count(chr(10), 0, match.start()) + 1}")
    assert not found


def test_no_text_claims_to_run_on_a_chip() -> None:
    found = {relative(path): claims(path.read_text(encoding="utf-8")) for path in text_files()}
    found.pop("tests/arch/test_files.py")
    assert {path: lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    ("text", "is_claim"),
    [
        ("The model runs on Trainium.", True),
        ("Tested on a real chip.", True),
        ("It has been verified on\n# trn2 by us.", True),
        ("Nothing here has ever run on a chip.", False),
        ("Will my model run on Trainium?", False),
        ("It runs on an emulated Trainium.", False),
    ],
)
def test_claims_are_recognised(text: str, is_claim: bool) -> None:
    assert bool(claims(text)) is is_claim


def test_the_licence_is_apache_2() -> None:
    assert (
        "Apache License\n                           Version 2.0" in (ROOT / "LICENSE").read_text()
    )
