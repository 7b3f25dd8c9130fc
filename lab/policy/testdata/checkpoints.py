"""Makes the small random checkpoints in this folder and what transformers computes with them. Run with transformers
5.23.0 and torch 2.15.0, which make test-trainers installs:

    python checkpoints.py

Each folder has config.json and model.safetensors (bfloat16) as save_pretrained writes them, and reference.json:

    tokens      one sequence of ids
    logprobs    natural log of softmax(logits) of each token but the first
    entropy     of the distributions that these tokens are from, in nats
    gradients   of minus the mean of logprobs by every parameter, flat, in float32
    greedy      the ids that greedy decoding with a cache appends to the first tokens, and the number of those
"""

import json
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedConfig, PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

SHAPE = dict(vocab_size=24, hidden_size=12, intermediate_size=16, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, head_dim=8, max_position_embeddings=128, tie_word_embeddings=True,
             bos_token_id=None, eos_token_id=None, pad_token_id=None)
# With 8 rotary dimensions and base 100 the waves have 6, 20, 63 and 199 positions: one stays, two are between the
# limits of 12 and 96, and one becomes 8 times as long.
LLAMA3 = dict(rope_type="llama3", rope_theta=100.0, factor=8.0, low_freq_factor=0.5, high_freq_factor=4.0,
              original_max_position_embeddings=48)


def randomize(model: PreTrainedModel) -> None:
    """Makes every parameter random and exact in bfloat16, norms too, so that none can be left out unseen."""
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape) * 0.4
            parameter.copy_((noise + 1 if parameter.dim() == 1 else noise).bfloat16().float())


def reference(model: PreTrainedModel, prompt: int, length: int, new: int) -> dict[str, object]:
    tokens = torch.randint(SHAPE["vocab_size"], (1, length))
    distributions = torch.log_softmax(model(input_ids=tokens).logits[0, :-1], dim=-1)
    logprobs = distributions.gather(1, tokens[0, 1:, None])[:, 0]
    entropy = -(distributions.exp() * distributions).sum(dim=-1)
    (-logprobs.mean()).backward()
    with torch.no_grad():
        greedy = model.generate(tokens[:, :prompt], max_new_tokens=new, do_sample=False)[0, prompt:]
    return {"tokens": tokens[0].tolist(), "logprobs": digits(logprobs), "entropy": digits(entropy),
            "gradients": {name: digits(p.grad.flatten()) for name, p in model.named_parameters()},
            "greedy": greedy.tolist(), "prompt": prompt}


def digits(x: torch.Tensor) -> list[float]:
    return [float(f"{v:.6g}") for v in x.tolist()]


def make(folder: str, model_class: type[PreTrainedModel], config: PreTrainedConfig) -> None:
    torch.manual_seed(1)
    model = model_class(config).eval()
    randomize(model)
    path = Path(__file__).parent / folder
    path.mkdir(exist_ok=True)
    golden = reference(model, prompt=7, length=72, new=40)
    (path / "reference.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")
    model.bfloat16().save_pretrained(path)
    (path / "generation_config.json").unlink()


make("qwen3", Qwen3ForCausalLM, Qwen3Config(**SHAPE))
make("llama3", LlamaForCausalLM, LlamaConfig(**SHAPE, rope_parameters=LLAMA3))
