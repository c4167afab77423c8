#!/usr/bin/env python3
"""A reward as a process: the share of the answer's words that the completion has. One JSON object a line in, one out; any language does.

  hone reward --reward "{kind = 'process', command = ['python3', 'examples/reward_process/reward.py']}" --in examples/rows.jsonl --json
"""
import json
import sys

for line in sys.stdin:
    request = json.loads(line)
    reply = {"id": request["id"]}
    if "protocol" in request:  # the first line: which version, and the recipe's options
        reply["protocol"] = 1
        ignore_case = request["options"].get("ignore_case", True)
    else:
        scores = []
        for completion, answer in zip(request["completions"], request["answers"]):
            if ignore_case:
                completion, answer = completion.lower(), answer.lower()
            words = answer.split()
            missing = [word for word in words if word not in completion]
            scores.append({"score": 1 - len(missing) / len(words), "note": "without " + ", ".join(missing) if missing else ""} if words else None)
        reply["scores"] = scores
    print(json.dumps(reply), flush=True)  # standard error is free for messages: hone's log shows it
