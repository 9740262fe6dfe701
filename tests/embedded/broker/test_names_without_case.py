"""A data directory on a file system that ignores case, such as those of macOS and Windows."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiokafka_lite.embedded import EmbeddedCluster, Refused


async def test_a_topic_whose_name_differs_only_in_case_is_refused(tmp_path: Path) -> None:
    async with EmbeddedCluster(1, data_dir=tmp_path) as cluster:
        await cluster.create_topic("Orders", 1, 1)
        (tmp_path / "topics" / "orders.json").symlink_to("Orders.json")  # both names are one file
        with pytest.raises(Refused, match="takes 'orders' and the topic 'Orders' for one name"):
            await cluster.create_topic("orders", 1, 1)
        await cluster.create_topic("bills", 1, 1)
