package service

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
)

// lab is the processes of a measurement. Close ends them.
type lab struct {
	dir     string // for sockets and files that need no disk
	disk    string // for journals, and for the disk's own file
	floor   *child
	floorAt place
	plain   *server
	durable *server       // nil: not measured
	redis   *redisServer  // nil: not here
	python  *pythonClient // nil: not here
	missing []string      // peers that are not here, with the reason
}

// newLab starts everything that the settings ask for.
func newLab(ctx context.Context, s Settings) (*lab, error) {
	l := &lab{}
	if err := l.open(ctx, s); err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

func (l *lab) open(ctx context.Context, s Settings) (err error) {
	if l.dir, err = os.MkdirTemp("", "reprise-bench"); err != nil {
		return err
	}
	if l.disk, err = os.MkdirTemp(s.Dir, "reprise-bench-disk"); err != nil {
		return &SettingError{"dir", s.Dir, "a folder to write to: " + err.Error()}
	}
	if err := l.openFloor(ctx, s.Program); err != nil {
		return err
	}
	if l.plain, err = startServer(ctx, s.Program, l.dir, "plain", "", s.ServerProfile); err != nil {
		return err
	}
	if s.Durable {
		if l.durable, err = startServer(ctx, s.Program, l.dir, "durable", filepath.Join(l.disk, "journals"), ""); err != nil {
			return err
		}
	}
	return l.openPeers(ctx, s)
}

func (l *lab) openFloor(ctx context.Context, program string) (err error) {
	if l.floorAt, err = newPlace(l.dir, "floor.sock"); err != nil {
		return err
	}
	if l.floor, err = start("bench floor", program, "bench", "floor", l.floorAt.host(), l.floorAt.path); err != nil {
		return err
	}
	return l.floor.answers(ctx, func() error { return dials(l.floorAt) })
}

// openPeers starts those that may be missing. Only what was asked for by name must be there.
func (l *lab) openPeers(ctx context.Context, s Settings) (err error) {
	if s.Redis != Off {
		l.redis, err = startRedis(ctx, s.Redis, l.dir)
		if err := l.absent(err, s.Redis); err != nil {
			return err
		}
	}
	if s.Python != Off {
		l.python, err = startPython(s.Python, l.dir)
		if err := l.absent(err, s.Python); err != nil {
			return err
		}
	}
	return nil
}

// absent notes a peer that is not here and that nobody named.
func (l *lab) absent(err error, setting string) error {
	if errors.Is(err, errAbsent) && setting == Auto {
		l.missing = append(l.missing, err.Error())
		return nil
	}
	return err
}

// close ends every process and removes the files.
func (l *lab) close() error {
	var errs []error
	if l.python != nil {
		errs = append(errs, l.python.close())
	}
	if l.redis != nil && l.redis.child != nil {
		errs = append(errs, l.redis.stop())
	}
	for _, s := range []*server{l.plain, l.durable} {
		if s != nil {
			errs = append(errs, s.close())
		}
	}
	if l.floor != nil {
		errs = append(errs, l.floor.stop())
	}
	for _, dir := range []string{l.dir, l.disk} {
		if dir != "" {
			errs = append(errs, os.RemoveAll(dir))
		}
	}
	return errors.Join(errs...)
}

// dials tells whether a server answers at both of its addresses.
func dials(at place) error {
	for _, over := range []string{TCP, Unix} {
		c, err := net.Dial(over, at.address(over))
		if err != nil {
			return err
		}
		c.Close()
	}
	return nil
}

// progress is told what is measured next.
type progress func(format string, args ...any)

func (p progress) say(format string, args ...any) {
	if p != nil {
		p(format, args...)
	}
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
