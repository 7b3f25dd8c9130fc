//go:build !xla

package backend

import (
	"errors"

	"github.com/gomlx/compute"
)

func openXLA(string) (compute.Backend, error) {
	return nil, errors.New("this program was built without XLA: build it with CGO_ENABLED=1 go build -tags xla")
}
