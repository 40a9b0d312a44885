"""What `import lakewake` offers, and what it costs."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import lakewake
from lakewake import errors

SOURCE = Path(lakewake.__file__).parent
#: What users see first. They read an index through its methods and views.
INTERFACES = ("cli", "demo", "ingest", "langchain.py", "mcp", "sample", "serve")
TYPES = {
    *("Index", "Lakewake", "View", "Reporter", "open", "__version__"),
    *("open_index", "find_indexes", "IndexDescription"),
    *("RowId", "SearchResult", "Hit", "Mode", "IndexedRow", "RowChunk", "Facet"),
    *("Recommendation", "AnsweredBy", "SyncRecord", "CommitMark", "Action", "Searching"),
    *("PlanReport", "SyncReport", "VerifyReport", "StatusReport"),
}
ERRORS = {
    name
    for name, kind in vars(errors).items()
    if inspect.isclass(kind) and issubclass(kind, errors.LakewakeError)
}


def test_the_package_exports_its_types_and_all_errors() -> None:
    assert set(lakewake.__all__) == TYPES | ERRORS
    assert dir(lakewake) == sorted(lakewake.__all__)


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
