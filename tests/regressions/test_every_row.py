"""Every row of the sections covered here has a test or a stated reason to wait."""

import ast
import re
from pathlib import Path

from regressions.deferred import DEFERRED, PARTLY_DEFERRED, ROWS

FOLDER = Path(__file__).parent
IDS = {section + number for section, numbers in ROWS.items() for number in numbers.split()}


def ids_in_test_names() -> dict[str, str]:
    """Map the ID in each test's name to the file that holds the test."""
    found: dict[str, str] = {}
    for path in sorted(FOLDER.glob("test_section_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                match = re.match(r"test_([a-z]\d\d)_", node.name)
                assert match, f"{path.name}: {node.name} names no row"
                found[match.group(1)] = path.name
    return found


def test_each_row_is_tested_or_deferred() -> None:
    tested = set(ids_in_test_names())
    assert tested | DEFERRED.keys() == IDS
    assert not tested & DEFERRED.keys()


def test_partly_deferred_rows_have_a_test_for_their_other_part() -> None:
    assert PARTLY_DEFERRED.keys() <= set(ids_in_test_names())


def test_each_test_lies_in_the_file_of_its_section() -> None:
    for row, file in ids_in_test_names().items():
        assert file.removeprefix("test_section_")[0] == row[0], f"{row} is in {file}"
