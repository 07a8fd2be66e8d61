"""``format("klog")`` from SQL, and in a session in which nobody has registered anything."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from tests.spark.conftest import TopicOnBroker

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

NewTopic = Callable[..., TopicOnBroker]


@pytest.fixture(scope="module")
def plain(spark: Any) -> Any:
    """Another session of the same JVM. What `start_session` has registered is known in its own session alone."""
    session = spark.newSession()
    with pytest.raises(Py4JJavaError, match="klog-files"):
        session.read.format("klog-files").load()
    return session


def test_a_table_of_the_catalog_is_refused_at_once(plain: Any) -> None:
    """Spark keeps a table's options and hands them to no Python source: it could never be read."""
    with pytest.raises(PySparkException, match="CREATE TEMPORARY VIEW"):
        plain.sql("CREATE TABLE messages USING klog OPTIONS (bootstrap.servers 'h:1', subscribe 't')")


def test_a_view_is_inserted_into(plain: Any, new_topic: NewTopic) -> None:
    """INSERT wants all columns of what it writes to; the option leaves those that are written."""
    topic = new_topic()
    plain.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW both USING klog OPTIONS (`kafka.bootstrap.servers` '{topic.bootstrap}', "
        f"SUBSCRIBE '{topic.name}', topic '{topic.name}', COLUMNS 'key,value')"
    )
    plain.sql("INSERT INTO both SELECT null, CAST('v' || id AS BINARY) FROM range(20)")
    found = plain.sql("SELECT CAST(value AS STRING) AS v, key FROM both").collect()
    assert sorted(tuple(row) for row in found) == sorted((f"v{i}", None) for i in range(20))


@pytest.mark.long("test_options.py names what is wrong in a stream")
def test_a_stream_s_options_that_are_wrong_are_named(plain: Any, new_topic: NewTopic, tmp_path: Path) -> None:
    rows = plain.readStream.format("klog").options(**{"bootstrap.servers": new_topic().bootstrap, "subscribe": "t"})
    query = rows.option("startingOffsets", "noon").load().writeStream.format("noop")
    with pytest.raises(PySparkException, match=r"startingOffsets.*noon") as refused:
        query.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start().awaitTermination()
    assert "UnboundLocalError" not in str(refused.value)
