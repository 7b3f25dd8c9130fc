"""Makes golden.json.gz: what Hugging Face's tokenizers library does with small tokenizers of every kind
that package hf supports. Run with tokenizers 0.21.4:

    python golden.py [TinyStories-656K/tokenizer.json] && gzip -9n golden.json

(0.23 encodes alike. Decoding, it no longer leaves out special tokens that were added with
normalized=true, because it compares their normalized text with the written one.)
"""
import json
import random
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

TEXT = """Once upon a time, there was a little girl named Lily. She didn't like the rain, but she'd play in it!
"Why are you sad?" said Tom. "I've lost 12 balls and 345 sticks," she said.  They looked   for them.
	def f(x): return x + 1  # tabs
Café naïve 日本語 日本 Привет мир 🙂 the the cat cat sat sat on the mat mat 2024 1,234.56
""".splitlines(True)

GPT4 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = GPT4.replace(r"\p{N}{1,3}", r"\p{N}")


def strings():
    out = ["", "a", " ", "  ", "   ", "\n", "\n\n", " \n ", "\t", "Once upon a time", " Once", "Once  upon   a    time",
           "Hello\nworld", "Hello\r\nworld", "trailing ", "trailing  ", "  \n\n  x", "x \n y", "It's", 
           "don't SHE'D I'M we'Ve",
           "<eos>", "Once<eos>", "Once <eos> upon", "a<unk>b", "a <unk> b", "<eos><eos>", "<eos> <eos>", "<eos",
           "x<mark>y", "x <mark> y", "word<word>word", "a <word> b",
           "café", "cafe\u0301", "日本語", "日本 語", "🙂", "a🙂b", "Привет", "\u00a0x", "a\u2028b",
           "\u3000wide", "a\u2003 b", "\ufffd", "▁", "a▁b", "<0x41>", "\x00", "a\x7fb", "\u00ad", "ſ's 'ſ",
           "0123456789", "12 + 34 = 46", "1,234.56 ½ ²", "\"Hi,\" he said.", "a_b-c", "the the the",
           "“quotes” — …", "İß ǅ", "👨\u200d👩\u200d👧", "한국어 ไทย हिन्दी", "ab" * 30, "x" + " " * 9,
           "#$%& *()"]
    words = ["Once", "upon", "the", "cat", "Lily", "she'd", "<eos>", "<unk>", "日", "é", "🙂", "42", "7", ".",
             ",", "\"", "'s"]
    rng = random.Random(7)
    while len(out) < 110:
        out.append("".join(rng.choice(words) + rng.choice([" ", "  ", "", "\n", " \n", ", "])
                           for _ in range(rng.randint(1, 10))))
    return out


def make(model, trainer_args, normalizer=None, pre=None, decoder=None, post=None, normalized=False):
    t = Tokenizer(model)
    if normalizer:
        t.normalizer = normalizer
    if pre:
        t.pre_tokenizer = pre
    t.train_from_iterator(TEXT * 3, trainers.BpeTrainer(show_progress=False, special_tokens=[
        AddedToken(name, normalized=normalized) for name in ("<unk>", "<bos>", "<eos>")], **trainer_args))
    t.add_tokens([AddedToken("<mark>", lstrip=True, rstrip=True, normalized=False),
                  AddedToken("<word>", single_word=True, normalized=False)])
    if decoder:
        t.decoder = decoder
    if post:
        t.post_processor = post
    return t


def tokenizers():
    template = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 1)])
    around = processors.TemplateProcessing(single="<bos> $A <eos>", special_tokens=[("<bos>", 1), ("<eos>", 2)])
    level = pre_tokenizers.ByteLevel
    byte_tokens = [f"<0x{i:02X}>" for i in range(256)]
    bytelevel = dict(vocab_size=400, initial_alphabet=level.alphabet())
    llama = dict(decoder=decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                            decoders.Strip(" ", 1, 0)]),
                 normalizer=normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]),
                 post=template)
    fallback = make(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True),
                    dict(vocab_size=420, limit_alphabet=40, initial_alphabet=[]), **llama)
    spec = json.loads(fallback.to_str())
    next_id = max(spec["model"]["vocab"].values()) + 1
    for i, b in enumerate(byte_tokens):  # the trainer makes no byte tokens: put them behind the rest
        spec["model"]["vocab"][b] = next_id + 2 + i
    yield "llama, byte fallback", Tokenizer.from_str(json.dumps(spec))
    yield "llama, unknown", make(models.BPE(unk_token="<unk>", fuse_unk=True), dict(vocab_size=150, limit_alphabet=40),
                                 normalized=True, **llama)
    yield "unknown, not fused", make(models.BPE(unk_token="<unk>"), dict(vocab_size=90, limit_alphabet=30), post=around)
    yield "gpt2", make(models.BPE(), bytelevel, pre=level(add_prefix_space=True), decoder=decoders.ByteLevel())
    yield "smollm2", make(models.BPE(), bytelevel, decoder=decoders.ByteLevel(),
                          pre=pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                       level(add_prefix_space=False)]))
    yield "digits together", make(models.BPE(), bytelevel, decoder=decoders.ByteLevel(),
                                  pre=pre_tokenizers.Sequence([pre_tokenizers.Digits(), level(add_prefix_space=False)]))
    for name, pattern, whole in [("qwen2", QWEN, False), ("llama3", GPT4, True)]:
        yield name, make(models.BPE(ignore_merges=whole), bytelevel | {"vocab_size": 420}, decoder=decoders.ByteLevel(),
                         normalizer=normalizers.NFC(), post=processors.Sequence([processors.ByteLevel(), template]),
                         pre=pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                                      level(add_prefix_space=False, use_regex=False)]))
    for scheme in ["always", "first", "never"]:
        yield "metaspace " + scheme, make(models.BPE(unk_token="<unk>"), dict(vocab_size=200, limit_alphabet=60),
                                          pre=pre_tokenizers.Metaspace(prepend_scheme=scheme, split=scheme != "first"),
                                          decoder=decoders.Metaspace(prepend_scheme=scheme))
    yield "removed, lower case", make(models.BPE(unk_token="<unk>"), dict(vocab_size=120, limit_alphabet=60),
                                      normalizer=normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()]),
                                      pre=pre_tokenizers.Split(" ", "removed"))


def results(t, texts):
    rng = random.Random(3)
    out = []
    for s in texts:
        ids = t.encode(s).ids
        out.append({"ids": ids, "part": t.encode(s, add_special_tokens=False).ids, "text": t.decode(ids)})
    noise = [[rng.randrange(t.get_vocab_size()) for _ in range(12)] for _ in range(30)]  # byte tokens out of order
    return {"encoded": out, "noise": [{"ids": n, "text": t.decode(n)} for n in noise]}


texts = strings()
golden = {"strings": texts, "tokenizers": {}}
for name, t in tokenizers():
    golden["tokenizers"][name] = {"json": json.loads(t.to_str()), **results(t, texts)}
if len(sys.argv) > 1:
    golden["tinystories"] = results(Tokenizer.from_file(sys.argv[1]), texts)
json.dump(golden, open("golden.json", "w"), separators=(",", ":"), ensure_ascii=False)
