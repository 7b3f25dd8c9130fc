package policy

import (
	"bytes"
	"image"
	"image/png"
)

// embeddings returns those of tokens, image by image those of patches [L][Hidden].
func (r *reference) embeddings(in Input) [][]float64 {
	var list [][]float64
	shown := 0
	for i, t := range in.Tokens {
		if size := r.Vision.Tokens(); size > 0 && int(t) == r.Vision.ImageTokenID && (in.Mask == nil || in.Mask[i] == 0) {
			list = append(list, r.look(in.Images[shown/size], shown%size))
			shown++
			continue
		}
		list = append(list, r.embed(t))
	}
	return list
}

// look returns the embedding of patch n of a picture.
func (r *reference) look(file []byte, n int) []float64 {
	picture, err := png.Decode(bytes.NewReader(file))
	if err != nil {
		panic(err)
	}
	side := r.Vision.PatchSize
	across := r.Vision.ImageSize / side
	var x []float64
	for y := n / across * side; y < (n/across+1)*side; y++ {
		for left := n % across * side; left < (n%across+1)*side; left++ {
			red, green, blue, _ := picture.At(left, y).RGBA()
			for _, v := range []uint32{red, green, blue} {
				x = append(x, 2*float64(v)/0xffff-1)
			}
		}
	}
	x = r.linear(x, "vision_tower.patch_embedding")
	for d := range x {
		x[d] += float64(r.weight["vision_tower.position_embedding.weight"][n*len(x)+d])
	}
	x = r.linear(x, "multi_modal_projector.linear_1")
	for d, v := range x {
		x[d] = silu(v)
	}
	return r.linear(x, "multi_modal_projector.linear_2")
}

// picture returns a PNG, a square of random opaque pixels.
func picture(side int, random func() uint8) []byte {
	p := image.NewNRGBA(image.Rect(0, 0, side, side))
	for i := range p.Pix {
		p.Pix[i] = random()
		if i%4 == 3 {
			p.Pix[i] = 255
		}
	}
	var b bytes.Buffer
	if err := png.Encode(&b, p); err != nil {
		panic(err)
	}
	return b.Bytes()
}
