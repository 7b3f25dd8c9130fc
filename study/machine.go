package study

import (
	"bufio"
	"bytes"
	"os"
	"runtime"
	"strings"

	"github.com/reprise-rl/reprise/results"
)

// thisMachine says what the program runs on.
func thisMachine() results.Machine {
	m := results.Machine{System: runtime.GOOS + "/" + runtime.GOARCH, Cores: runtime.NumCPU()}
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil { // Linux; others do not tell without a call to the system
		m.CPU = cpuModel(text)
	}
	return m
}

// cpuModel finds the model of the first processor in the text of /proc/cpuinfo, nothing if it is not named.
func cpuModel(text []byte) string {
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
