#!/usr/bin/env python3
r"""A reward process, in any language: one JSON object per line in, one out. The score is the share of the
answer's words that the completion contains.

  hone reward --reward "{kind = 'process', command = ['python3', 'examples/reward_process/reward.py']}" \
      --in examples/rows.jsonl --json
"""
import json
import sys

for line in sys.stdin:
    request = json.loads(line)
    answer_line = {"id": request["id"]}
    if "protocol" in request:  # the first line has the protocol version and the recipe's options
        answer_line["protocol"] = 1
        ignore_case = request["options"].get("ignore_case", True)
    else:
        scores = []
        for completion, answer in zip(request["completions"], request["answers"]):
            if ignore_case:
                completion, answer = completion.lower(), answer.lower()
            words = answer.split()
            missing = [word for word in words if word not in completion]
            note = "without " + ", ".join(missing) if missing else ""
            scores.append({"score": 1 - len(missing) / len(words), "note": note} if words else None)
        answer_line["scores"] = scores
    print(json.dumps(answer_line), flush=True)  # hone logs standard error
