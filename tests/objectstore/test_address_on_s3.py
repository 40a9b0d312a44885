"""Indexes in a bucket are found and opened by their address."""

from __future__ import annotations

import pytest

import lakewake
from lakewake.store.lance.store import LanceStore
from lakewake.sync import sync
from support.sampling import rid, sample_parts, values

pytestmark = [pytest.mark.matrix, pytest.mark.timeout(1800)]


def test_an_index_in_a_bucket_is_opened_by_its_address(bucket: str) -> None:
    parts = sample_parts(store=LanceStore(f"s3://{bucket}/lake/index", "sample"))
    parts.table.upsert({rid(f"k{n}"): values(f"text number {n}", n) for n in range(5)})
    sync(parts)
    address = f"lance+s3://{bucket}/lake/index/sample"
    assert lakewake.find_indexes(f"lance+s3://{bucket}/lake") == (address,)
    for given in (address, f"lance+s3://{bucket}/lake/index"):
        with lakewake.open_index(given) as index:
            assert index.search("text number 3", k=1).hits[0].key == "k3"
            assert (index.describe().rows, index.describe().address) == (5, address)
