"""An index whose rows belong to several tenants, with lists of who may read each row."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from lakewake.api import Index, Sessions
from lakewake.config.settings import IndexSettings
from lakewake.model.recipe import Recipe, TextField
from lakewake.progress import Silent
from lakewake.source.memory import MemoryTable
from lakewake.store import Store
from support.sampling import HASHING, rid, sample_parts, sample_recipe

SCHEMA = pa.schema(
    [
        ("txt", pa.string()),
        ("num", pa.int64()),
        ("tenant", pa.string()),
        ("acl", pa.list_(pa.string())),
    ]
)
PAYLOAD = ("num", "tenant", "acl")
OURS = {
    rid("ours 1"): ("smoky red with leather", 1, "acme", ["sales"]),
    rid("ours 2"): ("fresh white with citrus", 2, "acme", ["press", "sales"]),
    rid("ours 3"): ("sweet wine with honey", 3, "acme", ["sales"]),
}
#: Rows that the key may not see, in two worlds. All answers have to be the same in both.
THEIRS = (
    {},
    {
        rid("theirs 1"): ("smoky red with leather", 99, "zeta", ["sales"]),
        rid("theirs 2"): ("HIDDEN plum of zeta", -99, "zeta", ["HIDDEN"]),
        rid("theirs 3"): ("HIDDEN fresh fig", 77, None, None),
        rid("theirs 4"): ("HIDDEN honey", 2, "acme", []),
        rid("theirs 5"): ("HIDDEN honey", 2, "acme", ["HIDDEN"]),
    },
)
WHERE = "tenant = 'acme' AND acl CONTAINS ANY ('sales', 'press')"


def index_of(theirs: Any, store: Store | None = None) -> Index:
    recipe = Recipe(sample_recipe().model, (TextField("text", "{txt}"),), payload=PAYLOAD)
    table = MemoryTable(recipe, SCHEMA)
    rows = {**OURS, **theirs}
    table.upsert(
        {row: dict(zip(SCHEMA.names, values, strict=True)) for row, values in rows.items()}
    )
    made = IndexSettings(
        name="sample",
        table="/tables/sample",
        store="memory://sample",
        fields=recipe.fields,
        payload=PAYLOAD,
        model=HASHING,
    )
    index = Index(made, Sessions({}, None, False), Silent())
    index.__dict__["parts"] = sample_parts(table, store, recipe=recipe)
    index.sync()
    return index
