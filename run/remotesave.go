package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// remoteFile stands in a checkpoint in place of tableFile.
const remoteFile = "table.json"

// remoteSave is what remoteFile says: under which name the service keeps the table of the checkpoint. The run keeps two names in turn,
// so that the one of its last whole checkpoint is never the one being written.
type remoteSave struct {
	Name     string `json:"name"`
	Slot     int    `json:"slot"` // 0 or 1
	Version  int32  `json:"version"`
	Inserted uint64 `json:"inserted"` // rollouts, ever
	Present  int    `json:"present"`
}

func (r *remote) save(ctx context.Context, dir string) error {
	slot := 1 - r.slot
	saved := remoteSave{Name: fmt.Sprintf("%s-%d", r.place.Run, slot), Slot: slot, Version: int32(r.version), Inserted: r.last}
	answer, err := r.table.Checkpoint(ctx, saved.Name)
	if err != nil {
		return err
	}
	if err := r.at(rollout.Version(answer.Version)); err != nil {
		return err
	}
	saved.Present = answer.Present
	text, err := json.MarshalIndent(saved, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, remoteFile), append(text, '\n'), 0o644); err != nil {
		return err
	}
	r.slot = slot
	return nil
}

func (r *remote) restore(ctx context.Context, dir string) error {
	saved, err := readRemoteSave(dir)
	if err != nil {
		return err
	}
	info, err := r.table.Restore(ctx, saved.Name)
	if errors.Is(err, wire.ErrNotFound) {
		return fmt.Errorf("%w: the service has not got the table of the run's checkpoint: was its data folder replaced?", err)
	}
	if err != nil {
		return err
	}
	if info.Version != saved.Version || info.Present != saved.Present {
		return fmt.Errorf("table %s was restored to version %d with %d rollouts, the run's checkpoint has version %d with %d: another program has saved %s since",
			r.place.Address, info.Version, info.Present, saved.Version, saved.Present, saved.Name)
	}
	r.version, r.last, r.slot = rollout.Version(saved.Version), saved.Inserted, saved.Slot
	_, err = r.stats(ctx)
	return err
}

func readRemoteSave(dir string) (saved remoteSave, err error) {
	path := filepath.Join(dir, remoteFile)
	text, err := os.ReadFile(path)
	if err != nil {
		return saved, err
	}
	if err := json.Unmarshal(text, &saved); err != nil {
		return saved, fmt.Errorf("read %s: %w", path, err)
	}
	return saved, nil
}
