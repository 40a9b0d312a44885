"""Every error that a user can meet has a hint."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "lakewake"
#: Errors without a hint, by file and function, and why no user meets them.
CAUGHT = {
    ("setup/__init__.py", "_make_archive"): "ensure_archive catches it: sessions only start slower",
}
#: Their constructors add the hint.
OWN_HINT = {"TextRefused"}


def trees() -> dict[str, ast.Module]:
    return {
        file.relative_to(SOURCE).as_posix(): ast.parse(file.read_text(encoding="utf-8"))
        for file in sorted(SOURCE.rglob("*.py"))
        # The suite of stores raises errors only to see what a store does then.
        if "testing" not in file.relative_to(SOURCE).parts
    }


def name_of(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def error_classes(modules: dict[str, ast.Module]) -> set[str]:
    """The names of `LakewakeError` and all classes derived from it."""
    classes = [n for m in modules.values() for n in ast.walk(m) if isinstance(n, ast.ClassDef)]
    found = {"LakewakeError"}
    while new := {c.name for c in classes if found & set(map(name_of, c.bases))} - found:
        found |= new
    return found


def calls(tree: ast.AST, function: str = "") -> Iterator[tuple[str, ast.Call]]:
    """Every call, with the name of the function that makes it."""
    for node in ast.iter_child_nodes(tree):
        inner = node.name if isinstance(node, ast.FunctionDef) else function
        if isinstance(node, ast.Call):
            yield inner, node
        yield from calls(node, inner)


def has_hint(call: ast.Call) -> bool:
    given = [k.value for k in call.keywords if k.arg == "hint"]
    return bool(given) and not (isinstance(given[0], ast.Constant) and not given[0].value)


def without_hint(modules: dict[str, ast.Module]) -> dict[tuple[str, str], int]:
    """(file, function) → line of an error without a hint."""
    errors = error_classes(modules) - OWN_HINT
    return {
        (file, function): call.lineno
        for file, tree in modules.items()
        for function, call in calls(tree)
        if name_of(call.func) in errors and not has_hint(call)
    }


def test_every_error_has_a_hint() -> None:
    missing = without_hint(trees())
    assert [
        f"{f}:{n} in {name}" for (f, name), n in missing.items() if (f, name) not in CAUGHT
    ] == []


def test_the_list_of_exceptions_is_not_longer_than_needed() -> None:
    assert CAUGHT.keys() <= without_hint(trees()).keys()


def test_an_error_without_a_hint_is_found() -> None:
    source = """
class Own(LakewakeError): pass
def f(): raise errors.Own("fact", hint="")
def g(): return Own("fact")
def h(): raise Own("fact", hint="do this")
"""
    found = without_hint({"errors.py": ast.parse(source)})
    assert [function for _, function in found] == ["f", "g"]
