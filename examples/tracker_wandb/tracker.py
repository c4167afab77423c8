#!/usr/bin/env python3
"""Sends a run's metrics to Weights & Biases (pip install wandb).

  [tracker]
  command = ["python3", "examples/tracker_wandb/tracker.py", "--project", "gsm8k"]

Without a network: add "--offline". The run is then written to the run folder, and `wandb sync RUN/wandb/offline-run-*`
uploads it later. A resumed run continues the same run of the service, since hone sends the same id.
"""
import argparse
import json
import sys

import wandb

parser = argparse.ArgumentParser()
parser.add_argument("--project", default="hone")
parser.add_argument("--offline", action="store_true")
options = parser.parse_args()

first = json.loads(sys.stdin.readline())
run = wandb.init(
    project=options.project,
    name=first["name"],
    id=first["id"],
    resume="allow",
    dir=first["folder"],
    mode="offline" if options.offline else "online",
    config=first["config"],
)
# A run that resumes from an earlier checkpoint repeats steps. W&B takes only steps that rise, so the step is a metric.
run.define_metric("step")
run.define_metric("*", step_metric="step")
for line in sys.stdin:
    run.log(json.loads(line))
run.finish()
