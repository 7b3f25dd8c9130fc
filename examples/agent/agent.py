"""An agent with a calculator, by the openai package, that knows nothing of Reprise but its base URL.

    pip install openai
    python examples/agent/agent.py --problems 100        # after the others of run.sh are up

Each problem is solved several times. What is said is recorded by reprise capture, which gets a reward for each answer.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import openai

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "calculator",
            "description": "Adds two numbers.",
            "parameters": {
                "type": "object",
                "properties": {"expression": {"type": "string"}},
                "required": ["expression"],
            },
        },
    }
]


def calculate(arguments: str) -> str:
    try:
        sum_of = re.fullmatch(r"(\d{1,9})\+(\d{1,9})", json.loads(arguments)["expression"])
        return str(int(sum_of[1]) + int(sum_of[2])) if sum_of else "error"
    except (ValueError, TypeError, KeyError):
        return "error"


def solve(client: openai.OpenAI, question: str, stream: bool) -> str | None:
    """The agent: it asks the model until that answers without calling a tool."""
    messages: list = [{"role": "user", "content": question}]
    chats = client.chat.completions
    for _ in range(3):
        if stream:
            with chats.stream(model="calculator", messages=messages, tools=TOOLS) as events:
                message = events.get_final_completion().choices[0].message
        else:
            message = chats.create(model="calculator", messages=messages, tools=TOOLS).choices[0].message
        if not message.tool_calls:
            return message.content
        messages.append(message)
        for call in message.tool_calls:
            said = calculate(call.function.arguments)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": said})
    return None


def reward(url: str, session: str, **body: object) -> dict:
    request = urllib.request.Request(f"{url}/sessions/{session}/reward", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})  # fmt: skip
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--capture", default="http://127.0.0.1:8100")
    parser.add_argument("--problems", type=int, default=100)
    parser.add_argument("--group", type=int, default=8, help="sessions of a problem")
    parser.add_argument("--largest", type=int, default=19, help="number to add")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--stream", action="store_true")
    o = parser.parse_args()
    rng = random.Random(o.seed)
    rewards: list[float] = []

    def attempt(problem: int, number: int, a: int, b: int) -> float:
        session = f"{o.seed}-{problem}-{number}"
        client = openai.OpenAI(base_url=f"{o.capture}/sessions/{session}/v1", api_key="none")
        right = float(solve(client, f"{a}+{b}", o.stream) == str(a + b))
        reward(o.capture, session, reward=right, task=f"sum/{a}+{b}", group=f"{o.seed}-{problem}")
        return right

    with ThreadPoolExecutor(2 * o.group) as threads:
        for problem in range(0, o.problems, 2):  # two at a time
            asked = []
            for p in (problem, problem + 1)[: o.problems - problem]:
                a, b = rng.randint(0, o.largest), rng.randint(0, o.largest)
                asked += [(p, n, a, b) for n in range(o.group)]
            rewards += threads.map(lambda each: attempt(*each), asked)
            if (problem + 2) % 20 == 0:
                latest = rewards[-20 * o.group :]
                print(f"{problem + 2:4} problems, reward of the latest 20: {sum(latest) / len(latest):.3f}", flush=True)
    print(f"{len(rewards)} sessions, mean reward {sum(rewards) / len(rewards):.3f}")


if __name__ == "__main__":
    main()
