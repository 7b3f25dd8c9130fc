package sealed_test

import (
	"bytes"
	"fmt"

	"github.com/reprise-rl/reprise/replay/sealed"
)

func Example() {
	format := sealed.Format{Magic: "example", Version: 1}
	b, err := format.Seal([]string{"a", "b"})
	fmt.Println(err)
	var got []string
	fmt.Println(format.Open(bytes.NewReader(b), &got), got)
	b[len(b)-1] ^= 1
	fmt.Println(format.Open(bytes.NewReader(b), &got) != nil)
	fmt.Println(sealed.Format{Magic: "example", Version: 2}.Open(bytes.NewReader(b), &got))
	// Output:
	// <nil>
	// <nil> [a b]
	// true
	// its format is 1, only 2 is known: use the build that wrote it: invalid input
}
