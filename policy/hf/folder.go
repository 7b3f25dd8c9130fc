package hf

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
)

const (
	weightsFile = "model.safetensors"
	indexFile   = "model.safetensors.index.json"
)

// Folder is a model folder in memory.
type Folder struct {
	Config    Config
	Tensors   map[string]Tensor // by name: exactly those of Config.Specs
	Ignored   []string          // well-known buffers in the file that the model computes by itself (rotary_emb.inv_freq)
	Tokenizer *Tokenizer        // nil if the folder has no tokenizer.json
}

// ReadFolder reads a whole model folder.
func ReadFolder(dir string) (*Folder, error) {
	c, err := ReadConfig(dir)
	if err != nil {
		return nil, err
	}
	tensors, ignored, err := readTensors(dir, c)
	if err != nil {
		return nil, err
	}
	f := &Folder{Config: c, Tensors: tensors, Ignored: ignored}
	f.Tokenizer, err = ReadTokenizer(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return f, nil
}

// ReadTensors reads the weights of a model folder, from model.safetensors or, without one, from the
// shards that model.safetensors.index.json names. It returns exactly the tensors of c.Specs: every
// tensor missing, left over or of the wrong shape is reported in one error, before any data is read.
//
// A tied model's matrix is returned as model.embed_tokens.weight whether the file keeps it under
// that name, as lm_head.weight, or under both (then the two must be equal).
func ReadTensors(dir string, c Config) (map[string]Tensor, error) {
	tensors, _, err := readTensors(dir, c)
	return tensors, err
}

// shard is one open file of weights.
type shard struct {
	path string
	r    io.ReaderAt
	*header
}

func readTensors(dir string, c Config) (map[string]Tensor, []string, error) {
	if err := c.Validate(); err != nil {
		return nil, nil, err
	}
	names, index, err := shardNames(dir)
	if err != nil {
		return nil, nil, err
	}
	var shards []shard
	for _, name := range names {
		path := filepath.Join(dir, name)
		f, err := os.Open(path)
		if err != nil {
			return nil, nil, fmt.Errorf("open weights: %w", err)
		}
		defer f.Close() // all files stay open until every shape has been checked
		info, err := f.Stat()
		if err != nil {
			return nil, nil, fmt.Errorf("size of weights: %w", err)
		}
		h, err := readHeader(f, info.Size())
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", path, err)
		}
		if err := index.check(name, h); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", path, err)
		}
		shards = append(shards, shard{path, f, h})
	}
	tensors, ignored, err := assemble(c, shards)
	if err != nil {
		return nil, nil, fmt.Errorf("weights in %s: %w", dir, err)
	}
	return tensors, ignored, nil
}

// weightIndex is the weight_map of an index: tensor name -> file. It is nil for a single file.
type weightIndex map[string]string

// shardNames returns the files of weights in a folder, sorted.
func shardNames(dir string) ([]string, weightIndex, error) {
	if _, err := os.Stat(filepath.Join(dir, weightsFile)); err == nil {
		return []string{weightsFile}, nil, nil
	}
	path := filepath.Join(dir, indexFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("%s has neither %s nor %s: %w; weights in other formats must be saved as safetensors first",
			dir, weightsFile, indexFile, fs.ErrNotExist)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read index of weights: %w", err)
	}
	var index struct {
		WeightMap weightIndex `json:"weight_map"`
	}
	if err := json.Unmarshal(b, &index); err != nil {
		return nil, nil, fmt.Errorf("parse %s: %w", path, err)
	}
	if len(index.WeightMap) == 0 {
		return nil, nil, fmt.Errorf("%s: weight_map is empty: want a file for every tensor", path)
	}
	files := make(map[string]bool)
	for tensor, file := range index.WeightMap {
		if file != filepath.Base(file) || !filepath.IsLocal(file) {
			return nil, nil, fmt.Errorf("%s: weight_map[%q] is %q: want the name of a file in the same folder", path, tensor, file)
		}
		files[file] = true
	}
	return slices.Sorted(maps.Keys(files)), index.WeightMap, nil
}

// check holds the directory of one shard to the index, in both directions.
func (w weightIndex) check(file string, h *header) error {
	if w == nil {
		return nil
	}
	var errs []error
	has := make(map[string]bool)
	for _, s := range h.tensors {
		has[s.name] = true
		if w[s.name] != file {
			errs = append(errs, fmt.Errorf("tensor %q is here, but the index places it in %q", s.name, w[s.name]))
		}
	}
	for _, name := range sortedNames(w) {
		if w[name] == file && !has[name] {
			errs = append(errs, fmt.Errorf("tensor %q is not here, but the index says so", name))
		}
	}
	return errors.Join(errs...)
}

// assemble checks the tensors of all shards against c and loads them.
func assemble(c Config, shards []shard) (map[string]Tensor, []string, error) {
	found := make(map[string][]int)
	var ignored []string
	for _, sh := range shards {
		for _, s := range sh.tensors {
			if buffer(s.name) {
				ignored = append(ignored, s.name)
				continue
			}
			found[s.name] = s.shape
		}
	}
	_, hasEmbed := found[embedName]
	head, hasHead := found[headName]
	if c.TieWordEmbeddings && hasHead {
		if !hasEmbed {
			found[embedName] = head
		}
		if slices.Equal(found[embedName], head) {
			delete(found, headName)
		}
	}
	if err := checkShapes(c, found); err != nil {
		return nil, nil, err
	}
	tensors := make(map[string]Tensor)
	for _, sh := range shards {
		for _, s := range sh.tensors {
			if buffer(s.name) {
				continue
			}
			t, err := s.read(sh.r)
			if err != nil {
				return nil, nil, fmt.Errorf("%s: %w", sh.path, err)
			}
			tensors[s.name] = t
		}
	}
	slices.Sort(ignored)
	if c.TieWordEmbeddings {
		return tensors, ignored, tie(tensors)
	}
	return tensors, ignored, nil
}

// tie leaves a tied model its one matrix, under the name of the embedding.
func tie(tensors map[string]Tensor) error {
	head, ok := tensors[headName]
	if !ok {
		return nil
	}
	delete(tensors, headName)
	embed, ok := tensors[embedName]
	if !ok {
		head.Name = embedName
		tensors[embedName] = head
		return nil
	}
	for i, v := range embed.Data {
		if w := head.Data[i]; math.Float32bits(v) != math.Float32bits(w) {
			return fmt.Errorf("tensors %q and %q differ at element %d (%g, %g): want them equal, or tie_word_embeddings false",
				embedName, headName, i, v, w)
		}
	}
	return nil
}

// WriteFolder writes a model folder, which it makes if need be: the weights as F32 in the order of
// their names, the files of the tokenizer if tok is not nil, and config.json last. The tensors must
// be exactly those of c.Specs. Each file is replaced atomically.
func WriteFolder(dir string, c Config, tensors map[string]Tensor, tok *Tokenizer) error {
	if err := c.Validate(); err != nil {
		return fmt.Errorf("configuration of %s: %w", dir, err)
	}
	ordered, err := inOrder(c, tensors)
	if err != nil {
		return fmt.Errorf("weights for %s: %w", dir, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make model folder: %w", err)
	}
	if err := writeFile(dir, weightsFile, func(w io.Writer) error { return writeSafetensors(w, ordered) }); err != nil {
		return err
	}
	files := tok.Files()
	for _, name := range sortedNames(files) {
		if err := writeBytes(dir, name, files[name]); err != nil {
			return err
		}
	}
	return writeBytes(dir, "config.json", c.JSON())
}

// inOrder returns the tensors sorted by name after holding them to c.
func inOrder(c Config, tensors map[string]Tensor) ([]Tensor, error) {
	found := make(map[string][]int)
	var ordered []Tensor
	var errs []error
	for _, name := range sortedNames(tensors) {
		t := tensors[name]
		if t.Name != name {
			errs = append(errs, fmt.Errorf("tensor under %q has Name %q: want the same", name, t.Name))
		}
		found[name] = t.Shape
		ordered = append(ordered, t)
	}
	errs = append(errs, checkShapes(c, found))
	for _, t := range ordered {
		if slices.Min(append([]int{0}, t.Shape...)) >= 0 && len(t.Data) != elements(t.Shape) {
			errs = append(errs, fmt.Errorf("tensor %q has %d elements: its shape %v asks for %d", t.Name, len(t.Data), t.Shape, elements(t.Shape)))
		}
	}
	return ordered, errors.Join(errs...)
}

func writeBytes(dir, name string, b []byte) error {
	return writeFile(dir, name, func(w io.Writer) error { _, err := w.Write(b); return err })
}

// writeFile writes dir/name beside its place, syncs it and renames it there.
func writeFile(dir, name string, write func(io.Writer) error) (err error) {
	f, err := os.CreateTemp(dir, name+".tmp-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
			err = fmt.Errorf("write %s: %w", filepath.Join(dir, name), err)
		}
	}()
	w := bufio.NewWriterSize(f, 1<<20)
	if err = write(w); err != nil {
		return err
	}
	if err = errors.Join(w.Flush(), f.Chmod(0o644), f.Sync()); err != nil {
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), filepath.Join(dir, name))
}
