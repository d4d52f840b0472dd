"""Start Spark's executor as the entrypoint of Spark's own image does: in ours, Spark is a Python package."""

import os
import re
from pathlib import Path

import pyspark

home = Path(pyspark.__file__).parent
options = {key: value for key, value in os.environ.items() if re.fullmatch(r"SPARK_JAVA_OPT_\d+", key)}
java_options = [options[key] for key in sorted(options, key=lambda key: int(key.rpartition("_")[2]))]
memory = os.environ["SPARK_EXECUTOR_MEMORY"]
words = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}
backend = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
command = ["java", *java_options, f"-Xms{memory}", f"-Xmx{memory}", "-cp", f"{home}/jars/*", backend]
for option, variable in words.items():
    command += [option, os.environ[variable]]
os.execvp("java", command)
