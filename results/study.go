package results

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// StudyFile is the result of a study in its folder, beside report.html.
const StudyFile = "study.json"

// Study is study.json: what a named study ran and what it found.
type Study struct {
	Format int    `json:"format"`
	Name   string `json:"name"`
	Quick  bool   `json:"quick"` // a rehearsal with small budgets: no claim
	Seeds  int    `json:"seeds"` // of each arm, from 1

	Arms    []StudyArm `json:"arms"`
	Machine Machine    `json:"machine"`
	Build   Build      `json:"build"` // of the program that judged; runs name their own
	Began   time.Time  `json:"began"`
	Ended   time.Time  `json:"ended"`
	Seconds float64    `json:"seconds"` // wall time of the study's runs, summed; those that another study made before included
	AtOnce  int        `json:"at_once"` // runs side by side

	Sheet Sheet `json:"sheet"`
}

// StudyArm is the runs of one configuration.
type StudyArm struct {
	Name    string   `json:"name"`
	Differs []string `json:"differs"` // key: value of the configuration, where it is not that of the first arm
	Folders []string `json:"folders"` // of the runs in order of seeds, relative to the study's folder
	Failed  []string `json:"failed"`  // why runs ended with an error, "seed 3: …"
}

// Machine is what a study ran on.
type Machine struct {
	System string `json:"system"` // operating system and architecture
	CPU    string `json:"cpu"`    // model, where the system tells
	Cores  int    `json:"cores"`
}

// WriteStudy writes study.json into a folder.
func WriteStudy(dir string, s *Study) error {
	s.Format = Format
	return writeJSON(filepath.Join(dir, StudyFile), s)
}

// ReadStudy reads study.json from a folder.
func ReadStudy(dir string) (*Study, error) {
	text, err := os.ReadFile(filepath.Join(dir, StudyFile))
	if err != nil {
		return nil, err
	}
	s := new(Study)
	if err := decode(text, s); err != nil {
		return nil, fmt.Errorf("read %s: %w", filepath.Join(dir, StudyFile), err)
	}
	if s.Format != Format {
		return nil, fmt.Errorf("%s is of format %d, this program reads %d", filepath.Join(dir, StudyFile), s.Format, Format)
	}
	return s, nil
}

// IsStudy reports whether a folder holds a study that has ended.
func IsStudy(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, StudyFile))
	return err == nil
}
