//go:build race

package tests

const race = true // the race detector is on
