#!/usr/bin/env python3
"""Sends a run's metrics to trackio (pip install trackio), whose dashboard runs on this machine (`trackio show`).

  [tracker]
  command = ["python3", "examples/tracker_trackio/tracker.py", "--project", "gsm8k"]
"""
import argparse
import json
import sys

import trackio

parser = argparse.ArgumentParser()
parser.add_argument("--project", default="hone")
options = parser.parse_args()

first = json.loads(sys.stdin.readline())
trackio.init(project=options.project, name=f"{first['name']}-{first['id'][-4:]}", config=first["config"], resume="allow")
for line in sys.stdin:
    row = json.loads(line)
    trackio.log({name: value for name, value in row.items() if name != "step"}, step=row["step"])
trackio.finish()
