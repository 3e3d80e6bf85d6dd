"""A Spark cluster of two executors on this machine, for all tests of this folder."""

import os
import sys

import pytest


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """Its session: on loopback only, in a zone that is not UTC, and without any page."""
    from pyspark.sql import SparkSession

    from eigenveil.moments.spark_tasks import java_found

    if not java_found():
        pytest.skip("Java, which Spark needs, is not installed")
    own = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.executor.memory": "512m",
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "spark.executorEnv.SPARK_LOCAL_IP": "127.0.0.1",
        "spark.local.dir": str(tmp_path_factory.mktemp("spark")),
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.sql.session.timeZone": "America/New_York",
        "spark.log.level": "ERROR",
    }
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.master("local-cluster[2,1,512]").appName("tests")
    for name, value in own.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()
