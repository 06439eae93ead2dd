"""The documentation stands alone: its links lead somewhere in this repository, its code runs."""

import ast
import doctest
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^()\s]+)\)")
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def page_id(page: Path) -> str:
    return str(page.relative_to(ROOT))


def without_code(text: str) -> str:
    return re.sub(r"`[^`\n]*`", "", FENCE.sub("", text))


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, made as code hosts make them."""
    headings = re.findall(r"^#+\s+(.*?)\s*$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def python_blocks(page: Path) -> list[str]:
    return [code for language, code in FENCE.findall(page.read_text()) if language in {"python", "py"}]


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(without_code(page.read_text())):
        if link.startswith(("https://", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.is_relative_to(ROOT), f"{link} must stay inside the repository"
        assert target.exists(), f"{link} must exist"
        assert not anchor or anchor in anchors(target.read_text()), f"{link} must name a heading of {target.name}"


def test_the_overview_links_every_page() -> None:
    linked = set(LINK.findall((ROOT / "docs" / "index.md").read_text()))
    assert linked >= {page.name for page in (ROOT / "docs").glob("*.md")} - {"index.md"}


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_python_blocks_name_what_exists(page: Path) -> None:
    for code in python_blocks(page):
        if ">>>" in code:
            continue
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "cuvee":
                module = importlib.import_module(str(node.module))
                assert [n.name for n in node.names if not hasattr(module, n.name)] == []
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "cuvee":
                assert hasattr(importlib.import_module("cuvee"), node.attr), f"cuvee.{node.attr} must exist"


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_python_sessions_print_what_they_say(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    session = "\n".join(code for code in python_blocks(page) if ">>>" in code)
    test = doctest.DocTestParser().get_doctest(session, {}, page.name, str(page), 0)
    results = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE).run(test)
    assert results.failed == 0
