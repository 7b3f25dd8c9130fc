package service

import (
	"os"
	"runtime"
	"strings"
)

// Machine is where a result was measured.
type Machine struct {
	Processor string `json:"processor,omitempty"`
	Cores     int    `json:"cores"`
	System    string `json:"system"`
	Go        string `json:"go"`
}

func thisMachine() Machine {
	m := Machine{Processor: processor(), Cores: runtime.NumCPU(), System: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version()}
	if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.System += ", kernel " + strings.TrimSpace(string(release))
	}
	return m
}

// processor is the processor's name, where the system tells it.
func processor() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
