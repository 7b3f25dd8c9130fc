"""What PyTorch makes of a model of SmolLM2-135M's shape on a GPU: generation in tokens/s, training in TFLOP/s.

The sizes are those of BenchmarkSmolLM2 in lab/policy. One line for each precision, with and without torch.compile.
"""

import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM

BATCH, PROMPT, ANSWER = 64, 64, 128
ROWS, LENGTH = 64, 257
SECONDS = 4


def model(dtype):
    torch.manual_seed(1)
    config = LlamaConfig(vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30,
                         num_attention_heads=9, num_key_value_heads=3, max_position_embeddings=1024,
                         tie_word_embeddings=True, bos_token_id=None, eos_token_id=None, pad_token_id=0)
    return LlamaForCausalLM(config).to("cuda", dtype)


def per_second(f):
    f()  # compiles and warms up
    torch.cuda.synchronize()
    began, n = time.perf_counter(), 0
    while time.perf_counter() - began < SECONDS:
        f()
        torch.cuda.synchronize()
        n += 1
    return n / (time.perf_counter() - began)


def train(dtype, compiled):
    m = model(dtype)
    optimizer = torch.optim.AdamW(m.parameters(), lr=1e-6, fused=True)
    tokens = torch.randint(0, 49152, (ROWS, LENGTH), device="cuda")
    advantage = torch.rand(ROWS, 1, device="cuda") * 2 - 1

    def loss_of(rows, a):
        logits = m(input_ids=rows[:, :-1], use_cache=False).logits.float()
        log_probs = -torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten(), reduction="none")
        log_probs = log_probs.view(rows.shape[0], -1)
        ratio = torch.exp(log_probs - log_probs.detach())
        return -torch.minimum(ratio * a, ratio.clamp(0.8, 1.2) * a).mean()

    if compiled:
        loss_of = torch.compile(loss_of)

    def step():
        for part in range(0, ROWS, 16):
            (loss_of(tokens[part : part + 16], advantage[part : part + 16]) / (ROWS // 16)).backward()
        optimizer.step()
        optimizer.zero_grad()

    speed = per_second(step) * ROWS * (LENGTH - 1)
    parameters = sum(p.numel() for p in m.parameters())
    print(f"train {dtype} compiled={compiled}: {speed:,.0f} tokens/s, {6 * parameters * speed / 1e12:.1f} TFLOP/s",
          flush=True)


def generate(dtype, compiled):
    m = model(dtype).eval()
    prompts = torch.randint(1, 49152, (BATCH, PROMPT), device="cuda")
    options = {"cache_implementation": "static"} if compiled else {}

    def run():
        m.generate(prompts, attention_mask=torch.ones_like(prompts), do_sample=True, top_k=0, min_new_tokens=ANSWER,
                   max_new_tokens=ANSWER, **options)

    run()  # generate compiles at its second call
    print(f"generate {dtype} compiled={compiled}: {per_second(run) * BATCH * ANSWER:,.0f} tokens/s", flush=True)


if __name__ == "__main__":
    torch.backends.cuda.matmul.allow_tf32 = False
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}")
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    print(f"peak, product of 8192 x 8192 bf16: {per_second(lambda: a @ a) * 2 * 8192**3 / 1e12:.0f} TFLOP/s")
    b = a.float()
    print(f"peak, product of 8192 x 8192 float32: {per_second(lambda: b @ b) * 2 * 8192**3 / 1e12:.0f} TFLOP/s")
    for compiled in (False, True):
        for dtype in (torch.float32, torch.bfloat16):
            train(dtype, compiled)
            generate(dtype, compiled)
