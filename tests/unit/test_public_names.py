"""What `import lakewake` offers, and what it costs."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

import lakewake
from lakewake import errors

SOURCE = Path(lakewake.__file__).parent
#: What users see first. They read an index through its methods and views.
INTERFACES = ("cli", "demo", "ingest", "langchain.py", "mcp", "sample", "serve", "sql")
TYPES = {
    *("Index", "Lakewake", "View", "Reporter", "open", "__version__"),
    *("open_index", "find_indexes", "IndexDescription"),
    *("RowId", "SearchResult", "Hit", "Mode", "IndexedRow", "RowChunk", "Facet"),
    *("Recommendation", "AnsweredBy", "SyncRecord", "CommitMark", "Action", "Searching"),
    *("PlanReport", "SyncReport", "VerifyReport", "StatusReport", "DropReport"),
    *("Comparison", "Evaluation"),
    *("SyncedTogether", "SyncHistory", "Job", "JobKind", "JobState", "QuarantinedRow"),
    *("Reads", "Canaries", "Retrained", "CellSizes", "HotStatus"),
    *("Answered", "Mean", "Difference"),
}
#: Types that a caller neither makes nor needs to name: the wiring, and what our adapters read.
OURS = {
    *("IndexParts", "Embedder", "Reranker", "CanarySettings"),
    *("Question", "Frontier", "Recipe"),
}
ERRORS = {
    name
    for name, kind in vars(errors).items()
    if inspect.isclass(kind) and issubclass(kind, errors.LakewakeError)
}


def test_the_package_exports_its_types_and_all_errors() -> None:
    assert set(lakewake.__all__) == TYPES | ERRORS


def test_completion_shows_what_one_types_and_the_root_of_the_errors() -> None:
    assert dir(lakewake) == sorted({*TYPES, "LakewakeError", "errors"})
    assert all(hasattr(lakewake, name) for name in dir(lakewake))


def test_every_type_in_the_api_is_exported() -> None:
    """Those of the methods, and of the fields of what they return."""
    exported = [getattr(lakewake, name) for name in sorted(TYPES)]
    methods = [m for c in (lakewake.Index, lakewake.Lakewake, lakewake.View) for m in public_of(c)]
    annotations = [a for m in (*methods, lakewake.open, lakewake.open_index) for a in types_of(m)]
    annotations += [str(f.type) for c in exported if is_dataclass(c) for f in fields(c)]
    trees = (ast.parse(file.read_text()) for file in SOURCE.rglob("*.py"))
    ours = {n.name for tree in trees for n in ast.walk(tree) if isinstance(n, ast.ClassDef)}
    named = {word for a in annotations for word in re.findall(r"\w+", a)} & ours
    assert {"SearchResult", "RowId", "View", "Reads"} <= named
    assert named - OURS <= TYPES | ERRORS


def public_of(kind: type) -> list[Callable[..., object]]:
    """The public methods of a class, and the getters of its properties."""
    members = [m for name, m in inspect.getmembers(kind) if not name.startswith("_")]
    unwrapped = [getattr(m, "fget", getattr(m, "func", m)) for m in members]
    return [m for m in unwrapped if inspect.isfunction(m)]


def types_of(function: Callable[..., object]) -> list[str]:
    """The annotations of its parameters and of what it returns."""
    signature = inspect.signature(function)
    return [str(p.annotation) for p in signature.parameters.values()] + [
        str(signature.return_annotation)
    ]


@pytest.mark.parametrize("name", sorted(TYPES | ERRORS))
def test_every_exported_name_can_be_imported(name: str) -> None:
    assert getattr(lakewake, name) is not None


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = lakewake.nothing


def test_the_package_is_imported_without_anything_heavy() -> None:
    code = "import lakewake, sys; print(*sorted({m.split('.')[0] for m in sys.modules}))"
    loaded = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    assert not {"numpy", "pyarrow", "lance", "pyspark", "qdrant_client"} & set(loaded)


@pytest.mark.parametrize("interface", INTERFACES)
def test_interfaces_do_not_reach_into_the_parts_of_an_index(interface: str) -> None:
    path = SOURCE / interface
    files = [path] if path.is_file() else sorted(path.rglob("*.py"))
    assert files
    for file in files:
        reached = [
            node.lineno
            for node in ast.walk(ast.parse(file.read_text()))
            if isinstance(node, ast.Attribute) and node.attr == "parts"
        ]
        assert reached == [], file
