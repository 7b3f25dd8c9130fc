"""Scores pairs of responses and answers with several verifiers in one run, and prints what each accepted.

Every verifier gets the same pairs. One that fails on a pair, or takes longer than LIMIT seconds, has refused it. Those
that read boxes only get the last formula of a response without a box in one.
"""

import argparse
import ast
import importlib
import json
import logging
import pathlib
import re
import signal
import subprocess
import sys
import time
import types
import warnings

LIMIT = 5


def read_lines(path):
    return [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]


def read_tests(folder):
    """Reads the pairs in the tests of math-verify's source: lists of (answer, response, expected)."""
    pairs = []
    for path in sorted(pathlib.Path(folder).glob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "parametrize"):
                continue
            names = [name.strip() for name in ast.literal_eval(node.args[0]).split(",")]
            if names[:2] != ["gold", "pred"] or len(names) != 3:
                continue  # cases with options
            for case in node.args[1].elts:
                try:
                    answer, response, correct = ast.literal_eval(case)
                except ValueError:  # computed
                    continue
                pairs.append({"answer": answer, "response": response, "correct": bool(correct)})
    return pairs


def last_box(text):
    """Returns what the last box holds, None without one."""
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    depth = 0
    for at in range(start + 6, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return text[start + 7 : at]
    return None


def formula(text):
    """Returns the box, else the last formula, else the last line of a text."""
    box = last_box(text)
    if box is not None:
        return box
    found = re.findall(r"\$\$(.+?)\$\$|\$(.+?)\$|\\\[(.+?)\\\]|\\\((.+?)\\\)", text, re.S)
    if found:
        return next(part for part in found[-1] if part).strip()
    return text.strip().split("\n")[-1]


def boxed(text):
    return text if "\\boxed" in text else "\\boxed{" + formula(text) + "}"


def reprise(program):
    def judge(pairs):
        lines = "".join(json.dumps({"response": p["response"], "answer": p["answer"]}) + "\n" for p in pairs)
        out = subprocess.run([program, "verify", "math"], input=lines, capture_output=True, text=True, check=True)
        return [json.loads(line)["correct"] for line in out.stdout.splitlines()]

    return judge


def one_by_one(accepts):
    """Judges pairs one after the other, each within LIMIT seconds."""

    def expire(*_):
        raise TimeoutError

    def judge(pairs):
        verdicts = []
        for p in pairs:
            signal.signal(signal.SIGALRM, expire)
            signal.alarm(LIMIT)
            try:
                verdicts.append(bool(accepts(p["response"], p["answer"])))
            except Exception:
                verdicts.append(False)
            finally:
                signal.alarm(0)
        return verdicts

    return judge


def math_verify():
    from math_verify import parse, verify

    def accepts(response, answer):
        gold = answer if "$" in answer or "\\boxed" in answer else "\\boxed{" + answer + "}"
        return verify(parse(gold, parsing_timeout=LIMIT), parse(response, parsing_timeout=LIMIT), timeout_seconds=LIMIT)

    return one_by_one(accepts)


def plain_sympy():
    from sympy import simplify
    from sympy.parsing.latex import parse_latex

    parse_latex("1")  # an ImportError where antlr is missing

    def accepts(response, answer):
        a, b = (parse_latex(formula(text)) for text in (response, answer))
        return a == b or simplify(a - b) == 0

    return one_by_one(accepts)


def verl(folder, name):
    """Loads a scorer of verl, without the packages that verl itself imports."""
    if folder is None:
        raise ImportError("name its folder with --verl")
    for package in ("verl", "verl.utils", "verl.utils.reward_score"):
        module = sys.modules[package] = types.ModuleType(package)
        module.__path__ = [str(pathlib.Path(folder, *package.split(".")))]
    limit = sys.modules["verl.utils.py_functional"] = types.ModuleType("verl.utils.py_functional")
    limit.timeout_limit = lambda **_: lambda f: f  # ours
    score = importlib.import_module("verl.utils.reward_score." + name).compute_score

    def accepts(response, answer):
        got = score(boxed(response), formula(answer))
        return got[0] if isinstance(got, tuple) else got

    return one_by_one(accepts)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", default="bin/reprise")
    parser.add_argument("--verl", help="folder with the package verl")
    parser.add_argument("--tests", help="folder with the tests of math-verify's source")
    parser.add_argument("pairs", nargs="*", metavar="NAME=FILE", help="JSON lines with response, answer, correct")
    args = parser.parse_args()
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")

    sets = {}
    for item in args.pairs:
        name, path = item.split("=", 1)
        sets[name] = read_lines(path)
    if args.tests:
        sets["math-verify's tests"] = read_tests(args.tests)

    verifiers = {"reprise": lambda: reprise(args.program), "math-verify": math_verify, "plain sympy": plain_sympy}
    for name in ("prime_math", "math_reward"):
        verifiers["verl " + name] = lambda name=name: verl(args.verl, name)
    print("| pairs | verifier | right answers accepted | wrong answers accepted | ms a pair |")
    print("|---|---|--:|--:|--:|")
    missing = {}
    for title, pairs in sets.items():
        for name, make in verifiers.items():
            try:
                judge = make()
            except ImportError as err:
                missing[name] = err
                continue
            began = time.perf_counter()
            verdicts = judge(pairs)
            took = (time.perf_counter() - began) * 1000 / len(pairs)
            right = [v for v, p in zip(verdicts, pairs, strict=True) if p["correct"]]
            wrong = [v for v, p in zip(verdicts, pairs, strict=True) if not p["correct"]]
            print(f"| {title} | {name} | {sum(right)} of {len(right)} | {sum(wrong)} of {len(wrong)} | {took:.2f} |",
                  flush=True)
    for name, err in missing.items():
        print(f"SKIPPED: {name}: {err}")
    print("SKIPPED: rLLM's: it is not on PyPI")


if __name__ == "__main__":
    main()
