package hf

import (
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
	"strings"

	"github.com/reprise-rl/reprise/internal/disk"
)

// ConfigFile is the file of a model folder that describes the architecture: a folder without it is none.
const ConfigFile = "config.json"

// WeightsFile has the weights of a model folder, unless they are in shards.
const WeightsFile = "model.safetensors"

const indexFile = "model.safetensors.index.json"

// Folder is a model folder in memory.
type Folder struct {
	Config    Config
	Tensors   map[string]Tensor // by name: exactly those of Config.Specs
	Tokenizer *Tokenizer        // nil if the folder has no tokenizer.json
}

// ReadFolder reads a model folder. The weights are in model.safetensors or, without one, in the shards that
// model.safetensors.index.json names. A tied model's matrix may be stored as model.embed_tokens.weight, as
// lm_head.weight or as both, which must then be equal. Every tensor that is missing, unexpected or of the wrong shape
// is reported in one error, before any weights are read.
func ReadFolder(dir string) (*Folder, error) {
	f, err := ReadDescription(dir)
	if err == nil {
		f.Tensors, err = readWeights(dir, f.Config)
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

// ReadDescription is [ReadFolder] without the weights.
func ReadDescription(dir string) (*Folder, error) {
	path := filepath.Join(dir, ConfigFile)
	file, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read model configuration: %w", err)
	}
	f := &Folder{}
	if f.Config, err = parseConfig(file); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	f.Tokenizer, err = ReadTokenizer(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return f, nil
}

// weights is one open file of weights.
type weights struct {
	path    string
	file    io.ReaderAt
	entries []entry
}

func readWeights(dir string, c Config) (map[string]Tensor, error) {
	names, index, err := findShards(dir)
	if err != nil {
		return nil, err
	}
	var shards []weights
	for _, name := range names {
		path := filepath.Join(dir, name)
		f, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("open weights: %w", err)
		}
		defer f.Close() // all files stay open until every shape has been checked
		info, err := f.Stat()
		if err != nil {
			return nil, fmt.Errorf("size of weights: %w", err)
		}
		entries, err := readHeader(f, info.Size())
		if err == nil {
			err = index.check(name, entries)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		// Older checkpoints store the rotary frequencies of every layer, which a model computes by itself.
		entries = slices.DeleteFunc(entries, func(e entry) bool {
			return strings.HasSuffix(e.name, "rotary_emb.inv_freq")
		})
		shards = append(shards, weights{path, f, entries})
	}
	tensors, err := loadTensors(c, shards)
	if err != nil {
		return nil, fmt.Errorf("weights in %s: %w", dir, err)
	}
	return tensors, nil
}

// weightIndex is the weight_map of an index: tensor name -> file. It is nil for a single file.
type weightIndex map[string]string

// findShards returns the files of weights in a folder, sorted.
func findShards(dir string) ([]string, weightIndex, error) {
	if _, err := os.Stat(filepath.Join(dir, WeightsFile)); err == nil {
		return []string{WeightsFile}, nil, nil
	}
	path := filepath.Join(dir, indexFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("%s has neither %s nor %s: %w; save weights in other formats as safetensors first",
			dir, WeightsFile, indexFile, fs.ErrNotExist)
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
			return nil, nil, fmt.Errorf("%s: weight_map[%q] is %q: want the name of a file in the same folder",
				path, tensor, file)
		}
		files[file] = true
	}
	return slices.Sorted(maps.Keys(files)), index.WeightMap, nil
}

// check compares the tensors of one file with the index, in both directions.
func (w weightIndex) check(file string, entries []entry) error {
	if w == nil {
		return nil
	}
	var errs []error
	has := make(map[string]bool)
	for _, e := range entries {
		has[e.name] = true
		if w[e.name] != file {
			errs = append(errs, fmt.Errorf("tensor %q is here, but the index places it in %q", e.name, w[e.name]))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w)) {
		if w[name] == file && !has[name] {
			errs = append(errs, fmt.Errorf("tensor %q is not here, but the index places it here", name))
		}
	}
	return errors.Join(errs...)
}

// loadTensors checks the tensors of all files against c and loads them.
func loadTensors(c Config, files []weights) (map[string]Tensor, error) {
	shapes := make(map[string][]int)
	for _, f := range files {
		for _, e := range f.entries {
			shapes[e.name] = e.shape
		}
	}
	if head, ok := shapes[headName]; ok && c.TieWordEmbeddings {
		if _, ok := shapes[embedName]; !ok {
			shapes[embedName] = head
		}
		if slices.Equal(shapes[embedName], head) {
			delete(shapes, headName)
		}
	}
	if err := checkShapes(c, shapes); err != nil {
		return nil, err
	}
	tensors := make(map[string]Tensor)
	for _, f := range files {
		for _, e := range f.entries {
			t, err := e.read(f.file)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", f.path, err)
			}
			tensors[e.name] = t
		}
	}
	if c.TieWordEmbeddings {
		return tensors, tie(tensors)
	}
	return tensors, nil
}

// checkShapes compares the tensors found, name -> shape, with c. It reports every tensor that is missing, unexpected or
// of the wrong shape.
func checkShapes(c Config, shapes map[string][]int) error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	want := make(map[string]bool)
	for _, s := range c.Specs() {
		want[s.Name] = true
		switch shape, ok := shapes[s.Name]; {
		case !ok && s.Name == headName:
			bad("tensor %q is missing: want shape %v, or tie_word_embeddings true if the head is the embedding",
				s.Name, s.Shape)
		case !ok:
			bad("tensor %q is missing: want shape %v", s.Name, s.Shape)
		case !slices.Equal(shape, s.Shape):
			bad("tensor %q has shape %v: config.json asks for %v", s.Name, shape, s.Shape)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(shapes)) {
		if !want[name] {
			bad("tensor %q of shape %v is unexpected: a %s with this config.json has no such tensor",
				name, shapes[name], c.ModelType)
		}
	}
	return errors.Join(errs...)
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
			return fmt.Errorf("tensors %q and %q differ at element %d (%g, %g): want them equal, or "+
				"tie_word_embeddings false",
				embedName, headName, i, v, w)
		}
	}
	return nil
}

// WriteFolder writes a model folder and makes it if need be: the weights as F32 in the order of their names, the files
// of the tokenizer unless tok is nil, and config.json last. The tensors must be exactly those of c.Specs. Each file is
// replaced atomically.
func WriteFolder(dir string, c Config, tensors map[string]Tensor, tok *Tokenizer) error {
	if err := c.Validate(); err != nil {
		return fmt.Errorf("configuration of %s: %w", dir, err)
	}
	sorted, err := sortTensors(c, tensors)
	if err != nil {
		return fmt.Errorf("weights for %s: %w", dir, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make model folder: %w", err)
	}
	if err := writeFile(dir, WeightsFile, func(w io.Writer) error { return writeSafetensors(w, sorted) }); err != nil {
		return err
	}
	if tok != nil {
		if err := tok.Write(dir); err != nil {
			return err
		}
	}
	return writeBytes(dir, ConfigFile, c.encode())
}

// Write writes the files of the tokenizer to a folder.
func (t *Tokenizer) Write(dir string) error {
	for _, name := range slices.Sorted(maps.Keys(t.files)) {
		if err := writeBytes(dir, name, t.files[name]); err != nil {
			return err
		}
	}
	return nil
}

// sortTensors returns the tensors sorted by name after checking them against c.
func sortTensors(c Config, tensors map[string]Tensor) ([]Tensor, error) {
	shapes := make(map[string][]int)
	var sorted []Tensor
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		t := tensors[name]
		if t.Name != name {
			errs = append(errs, fmt.Errorf("tensor under %q has Name %q: want the same", name, t.Name))
		}
		shapes[name] = t.Shape
		sorted = append(sorted, t)
	}
	errs = append(errs, checkShapes(c, shapes))
	for _, t := range sorted {
		if slices.Min(append([]int{0}, t.Shape...)) >= 0 && len(t.Data) != elements(t.Shape) {
			errs = append(errs, fmt.Errorf("tensor %q has %d elements: its shape %v asks for %d",
				t.Name, len(t.Data), t.Shape, elements(t.Shape)))
		}
	}
	return sorted, errors.Join(errs...)
}

func writeBytes(dir, name string, b []byte) error {
	return writeFile(dir, name, func(w io.Writer) error { _, err := w.Write(b); return err })
}

func writeFile(dir, name string, write func(io.Writer) error) error {
	path := filepath.Join(dir, name)
	if err := disk.ReplaceFile(path, write); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
