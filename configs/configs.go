// Package configs holds configurations to start from.
package configs

import _ "embed"

// Addition is what `reprise train` runs if no configuration is named.
//
//go:embed addition.yaml
var Addition []byte
