"""Rewards the share of letters in their places: a JSON object on each line in, one out."""

import json
import sys

for line in sys.stdin:
    asked = json.loads(line)
    response, answer = asked["response"], asked["answer"]
    right = sum(a == b for a, b in zip(response, answer))
    reward = right / max(len(response), len(answer))
    print(json.dumps({"id": asked["id"], "reward": reward}), flush=True)
