// Package hf reads and writes model folders in Hugging Face's layout: config.json,
// model.safetensors (or its shards and their index), and the files of the tokenizer. It knows the
// decoders that transformers calls LlamaForCausalLM and Qwen2ForCausalLM and nothing of how they
// are computed; package policy does that.
//
//   - [Config] is config.json; [ReadConfig] and [ParseConfig] refuse what would be computed wrongly
//     (scaled rotary embeddings, sliding windows in use, other activations) instead of ignoring it.
//   - [Config.Specs] is the exact list of tensors such a model has. [ReadTensors] and
//     [WriteFolder] hold a folder to it: a tensor missing, left over or of the wrong shape is an
//     error that names it, all of them in one error.
//   - [Config.ValueHead] and [Config.Vision] are what Reprise adds to a decoder: a critic, and a tower for images. config.json
//     has them as value_head, vision_config and image_token_id, the weights as v_head.summary, vision_tower and
//     multi_modal_projector; without them a folder is transformers' to the letter.
//   - [Tensor] holds float32 in the layout of the file: linear weights are [out, in]. F16 and BF16
//     are widened exactly; what is written is F32 and loads again bit for bit.
//   - [Tokenizer] turns text into ids and back as Hugging Face's tokenizers library does;
//     [NewCharTokenizer] makes one from the characters of a task.
//
// The tokenizer and the safetensors reader are written here rather than taken from go-huggingface.
// Of 220 varied strings, its tokenizer gives the library's ids for 6 with a Llama tokenizer: Prepend is not
// applied, text without pre-tokenizer is divided at white space and loses it, merges do not cross
// spaces, byte fallback and look-ahead patterns are absent. Its safetensors reader maps files into
// memory, where a file cut short is a SIGBUS, and does not compare offsets with shapes.
//
// Every file is written beside its place, synced and renamed, so that a crash leaves the old file or
// the new one. Nothing here touches the network.
package hf
