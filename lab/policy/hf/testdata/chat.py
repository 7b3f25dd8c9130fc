"""Makes chat.json.gz: what transformers' apply_chat_template gives for templates in the style of well-known models,
with small tokenizers. Run with transformers 5.23.0 and Jinja2 3.1.6:

    python chat.py [SmolLM2-135M-Instruct] && gzip -9n chat.json
"""
import datetime
import json
import pathlib
import sys
import tempfile

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer

TEXT = """What is 2 + 3? The answer is 5. You answer briefly. Cutting Knowledge Date: today, 26 Jul 2024.
system user assistant model header<think> It is sunny, isn't it?\n\n1 + 1 = 2\n</think> INST </INST> tool "quoted"
""".splitlines(True)

CHATML = """{%- if messages[0].role != 'system' %}
    {{- '<|im_start|>system\\nYou answer briefly.<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' + message['content'] + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

# Thoughts are kept only after the last question.
THINKING = """{%- set ns = namespace(last=0) %}
{%- for message in messages[::-1] %}
    {%- set index = messages|length - 1 - loop.index0 %}
    {%- if message.role == "user" and message.content is string and ns.last == 0 %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages -%}
    {%- set content = message.content if message.content is defined else '' %}
    {%- if message.role == 'assistant' and '</think>' in content and loop.index0 < ns.last %}
        {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
    {%- endif %}
    {{- '<|im_start|>' ~ message.role ~ '\\n' ~ content ~ '<|im_end|>' }}
    {{- '\\n' }}
{%- endfor %}
{%- if tools %}{{ tools|tojson }}{% endif %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

LLAMA3 = """{{- bos_token }}
{%- if not date is defined %}
    {%- if strftime_now is defined %}
        {%- set date = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date = "none" %}
    {%- endif %}
{%- endif %}
{#- The system's message always comes first. #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\nToday Date: " + date + "\\n\\n" + system + "<|eot_id|>" }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""

GEMMA = """{{ bos_token }}{% if messages[0]['role'] == 'system' %}
{{ raise_exception('no system role') }}
{% endif %}
{% for message in messages %}
    {%- if (message['role'] == 'user') != (
        loop.index0 % 2 == 0) -%}
        {{ raise_exception("Roles must alternate") }}
    {%- endif -%}
    {%- set role = "model" if message['role'] == 'assistant' else message['role'] %}
{{ '<start_of_turn>' + role + '
' + message['content'] | trim + '<end_of_turn>
' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model
'}}
{%- endif -%}
"""

MISTRAL = """{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}\
{{ '[INST] ' + message['content'].strip() + ' [/INST]' }}{% else %}\
{{ ' ' + message['content'].strip() + ' ' + eos_token }}{% endif %}{% endfor %}"""

QUESTIONS = ["What is 2 + 3?", "Is it sunny?\n\nAnswer in \"quotes\".", "user"]
ANSWERS = ["5", "It is sunny.", "<think>\n1 + 1 = 2\n</think>\n\n5"]


def train(special, metaspace):
    """metaspace: whether a space comes before a text, first or never; without it the tokenizer is byte-level."""
    t = Tokenizer(models.BPE(unk_token="<unk>" if metaspace else None, byte_fallback=bool(metaspace)))
    if metaspace:
        t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=metaspace, split=False)
        t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                       decoders.Strip(" ", 1, 0)])
        special = ["<unk>", *special]
        alphabet = []
    else:
        t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        t.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokens = [AddedToken(s, special=True, normalized=False) for s in special]
    t.train_from_iterator(TEXT * 2, trainers.BpeTrainer(vocab_size=420, show_progress=False, special_tokens=tokens,
                                                        initial_alphabet=alphabet))
    bos = special[1 if metaspace else 0]
    t.post_processor = processors.TemplateProcessing(single=bos + " $A", special_tokens=[(bos, t.token_to_id(bos))])
    return t


def write(folder, template, special, metaspace, eos, listed):
    t = train(special, metaspace)
    t.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": special[0], "eos_token": eos}
    if listed is None:
        (folder / "chat_template.jinja").write_text(template)
    else:
        config["chat_template"] = [{"name": "tool_use", "template": "none"}, {"name": "default", "template": template}] \
            if listed else template
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def results(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    today = datetime.date.today().strftime("%d %b %Y")
    out = []
    for question in QUESTIONS:
        for answer in ANSWERS:
            for observed in QUESTIONS:
                messages = [{"role": "user", "content": question}]
                apply = lambda: tokenizer.apply_chat_template(
                    messages, add_generation_prompt=True, tokenize=False).replace(today, "26 Jul 2024")
                prompt = apply()
                messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": observed}]
                whole = apply()
                ids = lambda s: tokenizer(s, add_special_tokens=False)["input_ids"]
                out.append({"Question": question, "Answer": answer, "Observed": observed, "Prompt": prompt,
                            "PromptIDs": ids(prompt), "Whole": whole, "WholeIDs": ids(whole)})
    return out


def main():
    kinds = {
        "chatml": (CHATML, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], None, "<|im_end|>", False),
        "thinking": (THINKING, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], None, "<|endoftext|>", True),
        "llama3": (LLAMA3, ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
                            "<|eot_id|>"], None, "<|end_of_text|>", None),
        "gemma": (GEMMA, ["<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"], "never", "<eos>", None),
        "mistral": (MISTRAL, ["<s>", "</s>"], "first", "</s>", False),
    }
    golden = {"Kinds": {}}
    for name, kind in kinds.items():
        with tempfile.TemporaryDirectory() as d:
            folder = pathlib.Path(d)
            write(folder, *kind)
            golden["Kinds"][name] = {"Files": {p.name: p.read_text() for p in folder.iterdir()},
                                     "Cases": results(folder)}
    if len(sys.argv) > 1:
        golden["SmolLM2"] = results(sys.argv[1])
    json.dump(golden, open("chat.json", "w"), ensure_ascii=False)


main()
