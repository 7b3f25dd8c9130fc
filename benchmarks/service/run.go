package service

import (
	"context"
	"errors"
	"time"
)

// Run measures. Told, which may be nil, hears what is measured next.
func Run(ctx context.Context, s Settings, told func(format string, args ...any)) (result *Result, err error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	s = s.withDefaults()
	l, err := newLab(ctx, s)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	r := &Result{When: time.Now().UTC().Truncate(time.Second), Machine: thisMachine(), Rounds: s.Rounds, Seconds: s.Seconds}
	for _, tokens := range s.Tokens {
		list, err := measureTransfers(ctx, l, s, tokens, told)
		if err != nil {
			return nil, err
		}
		r.Transfers = append(r.Transfers, list...)
	}
	if l.durable != nil {
		if r.Durable, r.Disk, err = measureDurable(ctx, l, s, told); err != nil {
			return nil, err
		}
	}
	r.LeftOut = append(r.LeftOut, l.missing...)
	if l.redis != nil {
		r.Redis = l.redis.version
	}
	r.LeftOut = append(r.LeftOut, omitted(s)...)
	r.judge()
	return r, nil
}

// omitted says what the settings leave out.
func omitted(s Settings) []string {
	var list []string
	if s.Redis == Off {
		list = append(list, "redis: --redis off")
	}
	if s.Python == Off {
		list = append(list, "the Python client: --python off")
	}
	if !s.Durable {
		list = append(list, "durable tables: --no-durable")
	}
	return list
}
