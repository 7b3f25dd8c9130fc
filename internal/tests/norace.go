//go:build !race

package tests

const race = false // the race detector is off
