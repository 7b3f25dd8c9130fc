package main

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/reprise-rl/reprise/benchmarks/process"
)

//go:embed client.py
var pythonProgram []byte

// pythonClient is a Python process with the package `reprise`. It carries out tasks and measures them itself.
type pythonClient struct {
	command *exec.Cmd
	tasks   io.WriteCloser
	answers *bufio.Reader
	output  *process.Tail
}

// pythonTask is a line of the process's input.
type pythonTask struct {
	What    string  `json:"what"`
	Address string  `json:"address"`
	Table   string  `json:"table"`
	Tokens  int     `json:"tokens"`
	Batch   int     `json:"batch"`
	Seconds float64 `json:"seconds"`

	Prompts   []string `json:"prompts,omitempty"` // of a draw: batches in turn ask for some of these
	PerPrompt int      `json:"per_prompt,omitempty"`
}

// pythonAnswer is a line of its output.
type pythonAnswer struct {
	Operations int       `json:"operations"`
	Seconds    float64   `json:"seconds"`
	Latencies  []float64 `json:"latencies_us"`
	Error      string    `json:"error"`
}

// startPython starts the interpreter that the setting names, or the first that can import the package.
func startPython(setting, dir string) (*pythonClient, error) {
	script := filepath.Join(dir, "client.py")
	if err := os.WriteFile(script, pythonProgram, 0o600); err != nil {
		return nil, err
	}
	candidates := []string{setting}
	if setting == auto {
		candidates = []string{".venv-python/bin/python", "python3"}
	}
	for _, name := range candidates {
		path, err := exec.LookPath(name)
		if err == nil && exec.Command(path, "-c", "import reprise").Run() == nil {
			return runPython(path, script)
		}
	}
	return nil, fmt.Errorf("python: the package reprise is %w in %v", errMissing, candidates)
}

func runPython(path, script string) (*pythonClient, error) {
	p := &pythonClient{command: exec.Command(path, script), output: &process.Tail{}}
	p.command.Stderr = p.output
	var err error
	if p.tasks, err = p.command.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.answers = bufio.NewReader(out)
	if err := p.command.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	return p, nil
}

// contender makes a contender of a task.
func (p *pythonClient) contender(name string, task pythonTask) contender {
	return contender{name, func(_ context.Context, d time.Duration) (turn, error) {
		task.Seconds = d.Seconds()
		answer, err := p.carryOut(task)
		return turn{answer.Operations, answer.Seconds, answer.Latencies}, err
	}}
}

func (p *pythonClient) carryOut(task pythonTask) (answer pythonAnswer, err error) {
	if err := json.NewEncoder(p.tasks).Encode(task); err != nil {
		return answer, fmt.Errorf("python: %w: %s", err, p.output)
	}
	line, err := p.answers.ReadBytes('\n')
	if err != nil {
		return answer, fmt.Errorf("python: %w: %s", err, p.output)
	}
	if err := json.Unmarshal(line, &answer); err != nil {
		return answer, fmt.Errorf("python: answer %.200q: %w", line, err)
	}
	if answer.Error != "" {
		return answer, errors.New(answer.Error)
	}
	return answer, nil
}

// close ends the process by ending its input.
func (p *pythonClient) close() error {
	if err := errors.Join(p.tasks.Close(), p.command.Wait()); err != nil {
		return fmt.Errorf("python: %w: %s", err, p.output)
	}
	return nil
}
