"""Documents that name commands, files and links name ones that exist."""

import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from arch.repository import ROOT, relative

DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)#\s]+)(?:#[^)]*)?\)")


def commands(text: str) -> list[str]:
    """List the commands in the shell blocks of a document."""
    return [
        line.removeprefix("$ ").split("  #")[0].strip()
        for language, block in FENCE.findall(text)
        if language in {"sh", "bash", "shell", "console"}
        for line in block.splitlines()
        if line.strip() and not line.startswith("#")
    ]


def make_targets() -> set[str]:
    """List the targets that the Makefile documents."""
    return set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize("document", DOCUMENTS, ids=relative)
def test_make_commands_exist(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    named = {
        word
        for command in commands(text)
        if command.startswith("make ")
        for word in shlex.split(command)[1:]
        if re.fullmatch(r"[a-z-]+", word)
    }
    named |= set(re.findall(r"`make ([a-z-]+)[`\s]", text))
    assert named <= make_targets()


@pytest.mark.parametrize("document", DOCUMENTS, ids=relative)
def test_relative_links_lead_somewhere(document: Path) -> None:
    links = LINK.findall(document.read_text(encoding="utf-8"))
    local = [link for link in links if not re.match(r"\w+:", link)]
    assert [link for link in local if not (document.parent / link).exists()] == []


def test_the_readme_names_the_two_commands() -> None:
    assert {"make demo", "make test"} <= set(commands((ROOT / "README.md").read_text()))


def test_containers_use_the_commands_of_the_readme() -> None:
    documented = set(commands((ROOT / "README.md").read_text()))
    docker = (ROOT / "Dockerfile").read_text()
    dev = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    used = set(re.findall(r"^RUN ((?:pip|make) .*)$", docker, re.MULTILINE))
    used.add(dev["postCreateCommand"])
    assert used
    assert used <= documented


def test_adrs_are_short_and_complete() -> None:
    for path in sorted((ROOT / "docs" / "adr").glob("[0-9]*.md")):
        text = path.read_text(encoding="utf-8")
        assert len(text.splitlines()) <= 80, relative(path)
        for part in ("Status:", "## Context", "## Decision", "## Consequences", "## Rejected"):
            assert part in text, f"{relative(path)} has no {part}"


def test_changelog_fragments_are_named_as_the_changelog_reads_them() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    kinds = "|".join(kind["directory"] for kind in project["tool"]["towncrier"]["type"])
    pattern = re.compile(rf"(\+[a-z0-9-]+|\d+)\.({kinds})\.md|README\.md|\.gitignore")
    assert [p.name for p in (ROOT / "changelog").iterdir() if not pattern.fullmatch(p.name)] == []


def test_generated_pages_match_the_code() -> None:
    done = subprocess.run(
        [sys.executable, "tools/gen_docs.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_way_to_install_brings_what_the_build_needs() -> None:
    """The build runs without isolation: what pyproject.toml requires must be there before."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    names = {re.split(r"[<>=~!]", each)[0] for each in project["build-system"]["requires"]}
    for file in ("README.md", "Dockerfile", "Makefile"):
        lines = (
            (ROOT / file).read_text().replace("$(TORCH)", "torch").replace("$(JAXLIB)", "jaxlib")
        )
        installs = " ".join(line for line in lines.splitlines() if "pip install" in line)
        assert names - set(re.split(r'[\s"<>=~!]+', installs)) == set(), file
