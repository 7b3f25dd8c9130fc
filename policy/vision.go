package policy

import (
	. "github.com/gomlx/gomlx/core/graph" //lint:ignore ST1001 graph code reads as formulas
)

// images is what a pass sees of images: the patch behind each image token, nothing in a model without a tower.
type images struct {
	patches *Node // [B, S, PatchValues] float32, each value within [-1, 1]; 0 where the token is none of an image
	place   *Node // [B, S] int32: number of the patch in its image, row by row; -1 where the token is none of an image
}

// embed returns the embeddings [B, S, Hidden] of tokens [B, S]: those of the vocabulary, and where an image stands those that
// the tower and the projector make of its patches.
func (d *decoder) embed(tokens *Node, seen images) *Node {
	x := Gather(d.weight["model.embed_tokens.weight"], ExpandAxes(tokens, -1))
	if seen.patches == nil {
		return x
	}
	none := LessThan(seen.place, ZerosLike(seen.place))
	place := Where(none, ZerosLike(seen.place), seen.place)
	patch := Add(
		linear(seen.patches, d.weight["vision_tower.patch_embedding.weight"], d.weight["vision_tower.patch_embedding.bias"]),
		Gather(d.weight["vision_tower.position_embedding.weight"], ExpandAxes(place, -1)))
	h := linear(patch, d.weight["multi_modal_projector.linear_1.weight"], d.weight["multi_modal_projector.linear_1.bias"])
	h = Mul(h, Sigmoid(h))
	h = linear(h, d.weight["multi_modal_projector.linear_2.weight"], d.weight["multi_modal_projector.linear_2.bias"])
	return Where(BroadcastToDims(ExpandAxes(none, -1), x.Shape().Dimensions...), x, h)
}

// seen takes the inputs of images, which programs of models with a tower have last.
func (d *decoder) seen(in []*Node) images {
	if d.Vision.Tokens() == 0 {
		return images{}
	}
	return images{patches: in[0], place: in[1]}
}

// until returns the first n positions.
func (s images) until(n int) images {
	if s.patches == nil {
		return s
	}
	return images{patches: SliceAxis(s.patches, 1, AxisRange(0, n)), place: SliceAxis(s.place, 1, AxisRange(0, n))}
}
