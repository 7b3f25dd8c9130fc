package wire

import (
	"io"
	"strings"
	"unsafe"
)

func stringReader(s string) io.Reader { return strings.NewReader(s) }

func stringData(s string) *byte { return unsafe.StringData(s) }

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
