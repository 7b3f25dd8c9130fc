"""Writes a Hugging Face folder of SmolLM2's shape as the GGUF file that llama.cpp reads: `to_gguf.py FOLDER BASE OUT`.

What is not weights, the tokenizer above all, comes from BASE, a GGUF file of the same model.
"""

import json
import pathlib
import sys

import gguf
import numpy as np
from safetensors.numpy import load_file

folder, base, out = map(pathlib.Path, sys.argv[1:])
config = json.loads((folder / "config.json").read_text())
names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config["num_hidden_layers"])
writer = gguf.GGUFWriter(out, "llama")
for key, field in gguf.GGUFReader(base).fields.items():
    if not key.startswith("GGUF.") and key not in ("general.architecture", "general.file_type"):
        writer.add_key_value(key, field.contents(), field.types[0], field.types[-1] if len(field.types) > 1 else None)
writer.add_file_type(gguf.LlamaFileType.ALL_F32)
heads = {"q_proj.weight": config["num_attention_heads"], "k_proj.weight": config["num_key_value_heads"]}
for name, data in load_file(folder / "model.safetensors").items():
    for end, n in heads.items():
        if name.endswith(end):  # llama.cpp rotates neighbours, Hugging Face rotates halves
            data = data.reshape(n, 2, -1, data.shape[1]).swapaxes(1, 2).reshape(data.shape)
    writer.add_tensor(names.get_name(name, (".weight",)), np.ascontiguousarray(data))
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
