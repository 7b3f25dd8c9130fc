package policy

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"

	. "github.com/gomlx/gomlx/core/graph" //lint:ignore ST1001 graph code reads as formulas
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/reprise-rl/reprise/lab/policy/hf"
	"github.com/reprise-rl/reprise/rollout"
)

// Input is tokens that the policy did not produce: a prompt, or an environment's answer between turns. For a model with
// a vision tower, every image is a run of image tokens (hf.Vision), one for each patch, and Images are in the order of
// the runs.
type Input struct {
	Tokens []int32
	Images [][]byte // PNG, squares of the tower's ImageSize
	Mask   []uint8  // for Score: 1 where the policy produced the token, which is then no part of an image; nil: nowhere
	// for Score: a token's softmax is over its list of ids, or over the whole vocabulary if that is empty
	SamplingMask rollout.IDLists
}

// Plain returns inputs of tokens alone.
func Plain(tokens ...[]int32) []Input {
	list := make([]Input, len(tokens))
	for i, t := range tokens {
		list[i].Tokens = t
	}
	return list
}

// checkInput reports an input that the model cannot read.
func (m *Model) checkInput(row int, in Input) error {
	if len(in.Tokens) == 0 {
		return fmt.Errorf("row %d has no tokens: give at least one", row)
	}
	for i, t := range in.Tokens {
		if t < 0 || int(t) >= m.config.VocabSize {
			return fmt.Errorf("row %d, token %d: id %d is out of range: the vocabulary is 0 to %d",
				row, i, t, m.config.VocabSize-1)
		}
	}
	if in.Mask != nil && len(in.Mask) != len(in.Tokens) {
		return fmt.Errorf("row %d: a mask of %d for %d tokens: give one entry for each",
			row, len(in.Mask), len(in.Tokens))
	}
	if n := in.SamplingMask.Len(); n != 0 && n != len(in.Tokens) {
		return fmt.Errorf("row %d: a sampling mask of %d lists for %d tokens: give one for each", row, n, len(in.Tokens))
	}
	if err := m.checkImages(in); err != nil {
		return fmt.Errorf("row %d: %w", row, err)
	}
	return nil
}

// checkImages reports images that do not fit the image tokens or the tower.
func (m *Model) checkImages(in Input) error {
	tower := m.config.Vision
	if tower.Tokens() == 0 {
		return refuseImages(in.Images)
	}
	if n := m.countImageTokens(in.Tokens, in.Mask); n != len(in.Images)*tower.Tokens() {
		return fmt.Errorf("%d image tokens for %d images: want %d for each", n, len(in.Images), tower.Tokens())
	}
	for i, file := range in.Images {
		if err := checkHeader(file, tower.ImageSize); err != nil {
			return fmt.Errorf("image %d: %w", i, err)
		}
	}
	return nil
}

// countImageTokens counts the tokens that stand for patches: image tokens that the policy did not write. A nil mask
// means it wrote none.
func (m *Model) countImageTokens(tokens []int32, mask []uint8) int {
	n := 0
	for i := range tokens {
		if isPatch(m.config.Vision, tokens, mask, i) {
			n++
		}
	}
	return n
}

// isPatch reports whether token i stands for a patch of an image.
func isPatch(tower hf.Vision, tokens []int32, mask []uint8, i int) bool {
	return tower.ImageSize > 0 && int(tokens[i]) == tower.ImageTokenID && (mask == nil || mask[i] == 0)
}

// refuseImages reports images for a model without a tower.
func refuseImages(pngs [][]byte) error {
	if len(pngs) == 0 {
		return nil
	}
	return fmt.Errorf("%d images for a model without a vision tower: give it policy.vision, or a task without images",
		len(pngs))
}

// checkHeader reports a file that is no PNG of the tower's size, without allocating its pixels.
func checkHeader(file []byte, size int) error {
	c, err := png.DecodeConfig(bytes.NewReader(file))
	if err != nil {
		return fmt.Errorf("want a PNG: %w", err)
	}
	if c.Width != size || c.Height != size {
		return fmt.Errorf("%d x %d pixels: want %d x %[3]d, the tower's image_size", c.Width, c.Height, size)
	}
	return nil
}

// imageInputs are the images of a pass of rows x length positions. Without a tower they are empty and take no images.
type imageInputs struct {
	tower        hf.Vision
	rows, length int
	patches      []float32 // [rows, length, PatchValues] each value within [-1, 1]; 0 for text
	patch        []int32   // [rows, length] number of the patch in its image, row by row; -1 for text
	// patches [Tokens, PatchValues] by PNG: the rows of a group begin with the same image
	decoded map[string][]float32
}

// newImageInputs returns the inputs of a pass without images.
func (m *Model) newImageInputs(rows, length int) *imageInputs {
	s := &imageInputs{tower: m.config.Vision, rows: rows, length: length}
	if s.tower.Tokens() == 0 {
		return s
	}
	s.patches = make([]float32, rows*length*s.tower.PatchValues())
	s.patch, s.decoded = make([]int32, rows*length), make(map[string][]float32)
	for i := range s.patch {
		s.patch[i] = -1
	}
	return s
}

// add places the images of tokens, which are at [from, from+len(tokens)) of a row. Each run of image tokens that the
// policy did not write (see countImageTokens) is the next image. Images left over belong to tokens that were cut off,
// and are ignored.
func (s *imageInputs) add(row, from int, tokens []int32, mask []uint8, pngs [][]byte) error {
	if s.patch == nil {
		return refuseImages(pngs)
	}
	size, width, n := s.tower.Tokens(), s.tower.PatchValues(), 0
	var patches []float32 // of the present image
	for i := range tokens {
		if !isPatch(s.tower, tokens, mask, i) {
			continue
		}
		if n%size == 0 {
			if n/size >= len(pngs) {
				return fmt.Errorf("token %d is an image's, and there are %d images of %d tokens: give one for each "+
					"run of image tokens", i, len(pngs), size)
			}
			var err error
			if patches, err = s.decode(pngs[n/size]); err != nil {
				return fmt.Errorf("image %d: %w", n/size, err)
			}
		}
		at, patch := row*s.length+from+i, n%size
		s.patch[at] = int32(patch)
		copy(s.patches[at*width:(at+1)*width], patches[patch*width:])
		n++
	}
	if n%size != 0 {
		return fmt.Errorf("%d image tokens are no multiple of an image's %d: do not cut an image in two", n, size)
	}
	return nil
}

// decode returns the patches [Tokens, PatchValues] of a PNG, scaled to [-1, 1].
func (s *imageInputs) decode(file []byte) ([]float32, error) {
	if patches, ok := s.decoded[string(file)]; ok {
		return patches, nil
	}
	if err := checkHeader(file, s.tower.ImageSize); err != nil {
		return nil, err
	}
	picture, err := png.Decode(bytes.NewReader(file))
	if err != nil {
		return nil, fmt.Errorf("want a PNG: %w", err)
	}
	side, across := s.tower.PatchSize, s.tower.ImageSize/s.tower.PatchSize
	patches := make([]float32, 0, s.tower.Tokens()*s.tower.PatchValues())
	for n := range s.tower.Tokens() {
		corner := picture.Bounds().Min.Add(image.Pt(n%across*side, n/across*side))
		for i := range side * side {
			c := color.NRGBAModel.Convert(picture.At(corner.X+i%side, corner.Y+i/side)).(color.NRGBA)
			for _, v := range [3]uint8{c.R, c.G, c.B} {
				patches = append(patches, float32(v)/127.5-1)
			}
		}
	}
	s.decoded[string(file)] = patches
	return patches, nil
}

// args returns the arguments that imageNodesOf takes.
func (s *imageInputs) args() []any {
	if s == nil || s.patch == nil {
		return nil
	}
	return []any{
		tensors.FromFlatDataAndDimensions(s.patches, s.rows, s.length, s.tower.PatchValues()),
		tensors.FromFlatDataAndDimensions(s.patch, s.rows, s.length),
	}
}

// imageNodes are the imageInputs in a graph; nil without a tower.
type imageNodes struct {
	patches *Node // [B, S, PatchValues]
	patch   *Node // [B, S] int32
}

// imageInputs returns how many inputs imageNodesOf takes.
func (d *decoder) imageInputs() int {
	if d.Vision.Tokens() == 0 {
		return 0
	}
	return 2
}

// imageNodesOf takes the images from the last inputs of a program.
func (d *decoder) imageNodesOf(in []*Node) imageNodes {
	if d.imageInputs() == 0 {
		return imageNodes{}
	}
	return imageNodes{patches: in[0], patch: in[1]}
}

// first returns the first n positions.
func (s imageNodes) first(n int) imageNodes {
	if s.patches == nil {
		return s
	}
	return imageNodes{patches: SliceAxis(s.patches, 1, AxisRange(0, n)), patch: SliceAxis(s.patch, 1, AxisRange(0, n))}
}
