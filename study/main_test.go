package study

import (
	"testing"

	"go.uber.org/goleak"
)

// Package bleve, of the task search, starts goroutines when a program begins.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) }
