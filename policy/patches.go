package policy

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/reprise-rl/reprise/policy/hf"
)

// sight is what the tower sees in a pass of rows x length positions, see images. That of a model without a tower is empty and
// takes no images.
type sight struct {
	tower        hf.Vision
	rows, length int
	patches      []float32            // [rows, length, PatchValues]
	place        []int32              // [rows, length]
	known        map[string][]float32 // the patches [Tokens, PatchValues] of a PNG: rows of a group begin with the same one
}

// newSight returns a sight without images.
func (m *Model) newSight(rows, length int) *sight {
	s := &sight{tower: m.config.Vision, rows: rows, length: length}
	if s.tower.Tokens() == 0 {
		return s
	}
	s.patches = make([]float32, rows*length*s.tower.PatchValues())
	s.place, s.known = make([]int32, rows*length), make(map[string][]float32)
	for i := range s.place {
		s.place[i] = -1
	}
	return s
}

// put shows the images of tokens that stand at [from, from+len(tokens)) of a row. Of the image tokens among them, those of the
// policy excepted (mask, nil: none is of the policy), each run of Tokens is the next image; images left over belong to tokens
// cut off and are passed over.
func (s *sight) put(row, from int, tokens []int32, mask []uint8, pngs [][]byte) error {
	if s.place == nil {
		return unseen(pngs)
	}
	size, seen := s.tower.Tokens(), 0
	for i, t := range tokens {
		if int(t) != s.tower.ImageTokenID || (mask != nil && mask[i] == 1) {
			continue
		}
		if seen%size == 0 && seen/size >= len(pngs) {
			return fmt.Errorf("token %d is an image's, and there are %d images of %d tokens: give one for each run of image tokens", i, len(pngs), size)
		}
		s.place[row*s.length+from+i] = int32(seen % size)
		seen++
	}
	if seen%size != 0 {
		return fmt.Errorf("%d image tokens are no multiple of an image's %d: cut no image in two", seen, size)
	}
	return s.paint(row, from, tokens, pngs[:seen/size])
}

// checkImages reports images that do not fit a number of image tokens, or the tower.
func (m *Model) checkImages(count int, pngs [][]byte) error {
	tower := m.config.Vision
	if tower.Tokens() == 0 {
		return unseen(pngs)
	}
	if count != len(pngs)*tower.Tokens() {
		return fmt.Errorf("%d image tokens for %d images: want %d for each", count, len(pngs), tower.Tokens())
	}
	for n, file := range pngs {
		if err := checkHeader(file, tower.ImageSize); err != nil {
			return fmt.Errorf("image %d: %w", n, err)
		}
	}
	return nil
}

// unseen reports images of a model that has no tower to see them.
func unseen(pngs [][]byte) error {
	if len(pngs) == 0 {
		return nil
	}
	return fmt.Errorf("%d images for a model without a vision tower: give it policy.vision, or a task without images", len(pngs))
}

// checkHeader reports what is no PNG of the tower's size, without the memory that its pixels would take.
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

// paint writes the patches of images to the places that put found.
func (s *sight) paint(row, from int, tokens []int32, pngs [][]byte) error {
	at := row*s.length + from
	end := at + len(tokens)
	for n, file := range pngs {
		patches, err := s.cut(file)
		if err != nil {
			return fmt.Errorf("image %d: %w", n, err)
		}
		for left := s.tower.Tokens(); left > 0; at++ {
			if at == end {
				return fmt.Errorf("image %d: no tokens left for it", n)
			}
			if s.place[at] < 0 {
				continue
			}
			width := s.tower.PatchValues()
			patch := int(s.place[at]) * width
			copy(s.patches[at*width:(at+1)*width], patches[patch:patch+width])
			left--
		}
	}
	return nil
}

// cut returns the patches [Tokens, PatchValues] of a PNG, scaled to [-1, 1].
func (s *sight) cut(file []byte) ([]float32, error) {
	if patches, ok := s.known[string(file)]; ok {
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
	s.known[string(file)] = patches
	return patches, nil
}

// tensors returns the inputs that decoder.seen takes.
func (s *sight) tensors() []any {
	if s.place == nil {
		return nil
	}
	return []any{
		tensors.FromFlatDataAndDimensions(s.patches, s.rows, s.length, s.tower.PatchValues()),
		tensors.FromFlatDataAndDimensions(s.place, s.rows, s.length),
	}
}
