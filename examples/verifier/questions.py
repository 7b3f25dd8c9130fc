"""Writes the questions of reverse.yaml: words of four letters, to be written backwards."""

import itertools
import json

for letters in itertools.product("abcde", repeat=4):
    word = "".join(letters)
    print(json.dumps({"question": word + ":", "answer": word[::-1]}))
