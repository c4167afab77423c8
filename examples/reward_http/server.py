#!/usr/bin/env python3
"""A reward behind HTTP, in the payload of OpenRLHF's remote reward models: the share of letters in what follows the prompt.

  python3 examples/reward_http/server.py 5000 &
  hone reward --reward "{kind = 'http', url = 'http://localhost:5000/get_reward'}" --in examples/rows.jsonl --json
"""
import http.server
import json
import sys


def judge(query, prompt, label):
    reply = query[len(prompt):]
    return sum(c.isalpha() for c in reply) / len(reply) if reply else None  # None: nothing to say


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = json.dumps({"rewards": [judge(*one) for one in zip(asked["query"], asked["prompts"], asked["labels"])]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 5000), Handler).serve_forever()
