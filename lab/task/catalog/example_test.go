package catalog_test

import (
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/reprise-rl/reprise/lab/task/catalog"
)

func Example() {
	settings, err := catalog.Settings("arithmetic")
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := yaml.Unmarshal([]byte("{operations: [multiply], max: 30}"), settings); err != nil {
		fmt.Println(err)
		return
	}
	products, err := catalog.New("arithmetic", settings, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(products.HeldOut()[0].Text)

	_, err = catalog.Settings("sudoku")
	unknown, names, _ := strings.Cut(err.Error(), ": want one of ")
	fmt.Println(unknown)
	fmt.Println(names)
	// Output:
	// 26*8=
	// name: sudoku
	// arithmetic, calculator, cliffwalking, countdown, external, frozenlake, geometry, gsm8k, math, search, sokoban, words
}
