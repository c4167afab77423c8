#!/usr/bin/env python3
"""A reward server with the payload of OpenRLHF's remote reward models. The score is the share of letters in the
completion.

  python3 examples/reward_http/server.py 5000 &
  hone reward --reward "{kind = 'http', url = 'http://localhost:5000/get_reward'}" --in examples/rows.jsonl --json
"""
import http.server
import json
import sys


def judge(query, prompt, label):
    completion = query[len(prompt):]
    return sum(c.isalpha() for c in completion) / len(completion) if completion else None  # None: no score


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        rows = zip(request["query"], request["prompts"], request["labels"])
        answer = json.dumps({"rewards": [judge(*row) for row in rows]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 5000), Handler).serve_forever()
