"""The Python blocks of the README and the guides run as they stand.

The blocks of one document run in order in one fresh process, in an empty folder, as a reader would
type them. A block that is not meant to run is not marked `python`.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs" / "guides").rglob("*.md"))]
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def program(document: Path) -> str:
    """Join the Python blocks, each at the line where it stands in the document."""
    text = document.read_text(encoding="utf-8")
    lines: list[str] = []
    for block in PYTHON_BLOCK.finditer(text):
        first_line = text.count("\n", 0, block.start(1))
        lines += [""] * (first_line - len(lines))
        lines += block[1].splitlines()
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_python_blocks_run(document: Path, tmp_path: Path) -> None:
    script = tmp_path / f"{document.stem}.py"
    script.write_text(program(document), encoding="utf-8")
    assert script.read_text().strip(), f"{document.name} has no Python block"
    done = subprocess.run(
        [sys.executable, script.name], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
