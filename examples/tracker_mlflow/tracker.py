#!/usr/bin/env python3
"""Sends a run's metrics to MLflow (pip install mlflow).

  [tracker]
  command = ["python3", "examples/tracker_mlflow/tracker.py", "--uri", "http://127.0.0.1:5000"]

Without --uri, MLflow takes its default, a store on this machine. A resumed run continues the same run of the service.
"""
import argparse
import json
import re
import sys
import time

import mlflow
from mlflow.entities import Metric, Param
from mlflow.tracking import MlflowClient

parser = argparse.ArgumentParser()
parser.add_argument("--uri", default="")
parser.add_argument("--experiment", default="hone")
options = parser.parse_args()


def flat(value, key=""):
    """Yields the keys of the recipe as MLflow's parameters: stage.0.learning_rate."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from flat(inner, f"{key}.{name}" if key else name)
    elif isinstance(value, list) and any(isinstance(inner, dict) for inner in value):
        for i, inner in enumerate(value):
            yield from flat(inner, f"{key}.{i}")
    else:
        yield key, str(value)[:500]


first = json.loads(sys.stdin.readline())
if options.uri:
    mlflow.set_tracking_uri(options.uri)
experiment = mlflow.set_experiment(options.experiment).experiment_id
client = MlflowClient()
found = client.search_runs([experiment], f"tags.hone_id = '{first['id']}'")
if found:
    run_id = found[0].info.run_id
else:
    run_id = client.create_run(experiment, tags={"hone_id": first["id"]}, run_name=first["name"]).info.run_id
    parameters = [Param(name, text) for name, text in flat(first["config"])]
    for i in range(0, len(parameters), 100):
        client.log_batch(run_id, params=parameters[i:i + 100])

for line in sys.stdin:
    row = json.loads(line)
    now = int(time.time() * 1000)
    metrics = [Metric(re.sub(r"[^\w./ -]", "_", name), value, now, row["step"])
               for name, value in row.items() if name != "step" and isinstance(value, (int, float))]
    for i in range(0, len(metrics), 500):
        client.log_batch(run_id, metrics=metrics[i:i + 500])
client.set_terminated(run_id)
