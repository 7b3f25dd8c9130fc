package frame_test

import (
	"bytes"
	"fmt"
	"image/color"
	"image/png"

	"github.com/reprise-rl/reprise/lab/task/frame"
)

func Example() {
	colours := map[byte]color.RGBA{'w': {R: 255, G: 255, B: 255, A: 255}, 'r': {R: 200, A: 255}}
	white := frame.Paint(colours, "wwwwwwww", "wwwwwwww", "wwwwwwww", "wwwwwwww", "wwwwwwww", "wwwwwwww",
		"wwwwwwww", "wwwwwwww")
	spot := frame.Paint(colours, "wwwwwwww", "wwwwwwww", "wwwwwwww", "wwwrrwww", "wwwrrwww", "wwwwwwww",
		"wwwwwwww", "wwwwwwww")
	file := new(frame.Encoder).Draw([][]frame.Sprite{{white, spot, white}}, 16)

	picture, err := png.Decode(bytes.NewReader(file))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(picture.Bounds().Size(), picture.At(24, 8), picture.At(8, 8))
	// Output:
	// (48,16) {200 0 0 255} {255 255 255 255}
}
