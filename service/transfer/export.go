package transfer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"google.golang.org/grpc"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/service"
	"github.com/reprise-rl/reprise/service/journal"
	"github.com/reprise-rl/reprise/wire"
	"github.com/reprise-rl/reprise/wire/archive"
)

// Source is a table whose rollouts can be exported: *client.Table, or [Local].
type Source interface {
	Info(ctx context.Context) (wire.TableInfo, error)
	Export(ctx context.Context, o client.ExportOptions, each func(arrow.RecordBatch) error) error
}

// ExportOptions say what an export writes.
type ExportOptions struct {
	Path      string         // to write: a file of Arrow IPC, or the folder of a dataset
	Format    archive.Format // "": archive.Arrow
	Replace   bool           // what is there; a file always is
	IDs       []uint64       // of the rollouts; nil: all
	Where     string         // a condition that they meet; "": none
	Columns   []string       // of the sampling schema; nil: all
	Rows      int            // rollouts in one record batch of the file
	ByVersion bool           // datasets only: a folder for each version
}

// Exported is the result of an export.
type Exported struct {
	Source   string            `json:"source"`
	File     string            `json:"file"`
	Rollouts int64             `json:"rollouts"`
	Version  int32             `json:"version"` // of the table when the export began
	Seconds  float64           `json:"seconds"`
	Missing  []uint64          `json:"missing,omitempty"`  // requested ids that the table does not hold
	Files    int               `json:"files,omitempty"`    // of a dataset
	Bytes    int64             `json:"bytes,omitempty"`    // of them
	Versions []rollout.Version `json:"versions,omitempty"` // with ByVersion
}

// Export writes a table. Name is what the result calls it.
func Export(ctx context.Context, name string, table Source, o ExportOptions) (*Exported, error) {
	began := time.Now()
	info, err := table.Info(ctx)
	if err != nil {
		return nil, err
	}
	schema, err := o.schema(info)
	if err != nil {
		return nil, err
	}
	choice := archive.NewChoice(o.IDs)
	done := &Exported{Source: name, File: o.Path, Version: info.Version}
	fill := func(add func(arrow.RecordBatch) error) error {
		asked := client.ExportOptions{Rows: o.Rows, Columns: o.Columns, Where: o.Where}
		return table.Export(ctx, asked, func(rec arrow.RecordBatch) error {
			if len(o.IDs) == 0 {
				return add(rec)
			}
			chosen, err := choice.Of(rec)
			if err != nil || chosen == nil {
				return err
			}
			defer chosen.Release()
			return add(chosen)
		})
	}
	if o.Format == archive.Parquet || o.Format == archive.JSONL {
		var written archive.Dataset
		written, err = archive.WriteDataset(o.Path, schema, archive.DatasetOptions{Format: o.Format,
			ByVersion: o.ByVersion, Replace: o.Replace, About: o.about(name, info)}, fill)
		done.Rollouts, done.Files, done.Bytes = written.Rollouts, written.Files, written.Bytes
		done.Versions = written.Versions
	} else {
		done.Rollouts, err = archive.Write(o.Path, schema, fill)
	}
	if err != nil {
		return nil, err
	}
	done.Missing, done.Seconds = choice.Missing(), time.Since(began).Seconds()
	return done, nil
}

// about says in a dataset's card what was exported.
func (o ExportOptions) about(name string, info wire.TableInfo) string {
	text := fmt.Sprintf("Exported by Reprise from %s at version %d", name, info.Version)
	if o.Where != "" {
		text += fmt.Sprintf(", where `%s`", o.Where)
	}
	return text + "."
}

// schema is the schema of the export's record batches.
func (o ExportOptions) schema(info wire.TableInfo) (*arrow.Schema, error) {
	if len(o.IDs) > 0 && len(o.Columns) > 0 && !slices.Contains(o.Columns, archive.IDColumn) {
		return nil, fmt.Errorf("--columns %s: want %s among them, because of --ids", strings.Join(o.Columns, ","),
			archive.IDColumn)
	}
	extra, err := extraFields(info)
	if err != nil {
		return nil, err
	}
	schema, err := wire.SampleSchema(o.Columns, extra...)
	if err != nil {
		return nil, fmt.Errorf("--columns: %w", err)
	}
	return schema, nil
}

// extraFields are the columns that a table has of its own.
func extraFields(info wire.TableInfo) ([]arrow.Field, error) {
	if info.Definition == nil {
		return nil, nil
	}
	return wire.ExtraFields(info.Definition.Columns)
}

// WithJournal serves a copy of a journal's table, on a socket of its own, while use runs.
func WithJournal(ctx context.Context, path string, use func(*client.Table) error) (err error) {
	data, err := os.MkdirTemp("", "reprise-export")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(data)) }()
	name, err := copyJournal(path, data)
	if err != nil {
		return err
	}
	socket := filepath.Join(data, "socket")
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	s, err := service.New(service.Options{Data: data, Sync: journal.Off, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return errors.Join(err, l.Close())
	}
	server := grpc.NewServer(s.GRPCOptions(nil)...)
	s.Register(server)
	served := make(chan error, 1)
	go func() { served <- server.Serve(s.Listener(l)) }()
	defer func() {
		_, stopped := s.Stop(context.WithoutCancel(ctx))
		server.Stop()
		err = errors.Join(err, stopped, <-served)
	}()
	c, err := client.Dial(ctx, "grpc+unix://"+socket, client.Options{})
	if err != nil {
		return err
	}
	defer c.Close()
	return use(c.Table(name))
}

// copyJournal copies a whole journal to where a service with that data folder looks for it, and returns its table's
// name.
func copyJournal(path, data string) (name string, err error) {
	folder := filepath.Join(data, "tables")
	if err := os.Mkdir(folder, 0o700); err != nil {
		return "", err
	}
	copied := filepath.Join(data, "journal")
	report, err := journal.Salvage(path, copied)
	if err != nil {
		return "", err
	}
	if !report.Whole() {
		return "", fmt.Errorf("the journal is damaged: %s\n`reprise journal salvage %s --out NEW` saves what is "+
			"intact in a new file that can be exported", report, path)
	}
	var definition wire.Table
	if err := json.Unmarshal(report.Definition, &definition); err != nil {
		return "", fmt.Errorf("%s: the definition of its table: %w", path, err)
	}
	if err := wire.CheckName(definition.Name); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return definition.Name, os.Rename(copied, filepath.Join(folder, definition.Name+".journal"))
}
