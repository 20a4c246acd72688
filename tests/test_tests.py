"""The tests themselves: where they stand, what they import, and how long they are."""

import ast
from collections.abc import Iterator
from pathlib import Path

import fedfa

TESTS = Path(__file__).parent
HELPERS = TESTS / "helpers"
NO_TESTS = {"flower_apps", "__pycache__"}
FILES = [path for path in sorted(TESTS.rglob("*.py")) if not NO_TESTS & set(path.relative_to(TESTS).parts)]
MOST_LINES, MOST_LINES_OF_A_FUNCTION = 350, 60


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Names and lengths, from ``def`` to the end."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield node.name, node.end_lineno - node.lineno + 1


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def packages(root: Path) -> set[str]:
    return {str(path.parent.relative_to(root)) for path in root.rglob("__init__.py")} - {"."}


def test_no_function_and_no_file_is_long() -> None:
    long = [(path.name, name, lines) for path in FILES for name, lines in functions(path)]
    assert [one for one in long if one[-1] > MOST_LINES_OF_A_FUNCTION] == []
    assert [path.name for path in FILES if len(path.read_text().splitlines()) > MOST_LINES] == []


def test_no_test_imports_another_test() -> None:
    for path in FILES:
        assert [name for name in imports(path) if any(part.startswith("test_") for part in name.split("."))] == [], path


def test_folders_are_those_of_the_package() -> None:
    source, here = packages(Path(fedfa.__file__).parent), packages(TESTS) - {HELPERS.name}
    assert here <= source
    assert {name for name in source if "/" not in name} <= here


def test_tests_are_where_pytest_looks_for_them() -> None:
    for path in FILES:
        has_tests = any(name.startswith("test_") for name, _ in functions(path))
        assert has_tests == path.name.startswith("test_"), path
    others = [path.name for path in FILES if path.parent == TESTS and not path.name.startswith("test_")]
    assert others == ["__init__.py", "conftest.py"]
