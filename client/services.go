package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/reprise-rl/reprise/replay/parted"
	"github.com/reprise-rl/reprise/rollout/option"
	"github.com/reprise-rl/reprise/wire"
)

// Scope says from which parts of a table a batch comes. Queues draw from all, in proportion to what each holds.
type Scope string

// The scopes.
const (
	// one of the trainer's own parts, in turns: those whose number leaves trainer when divided by trainers
	OwnParts Scope = "own"
	// all parts that are up: probabilities and weights are those of one table that holds everything (package parted)
	AllParts Scope = "global"
)

// AllOptions configure the connections to several services.
type AllOptions struct {
	Options
	Trainer  int          // number of this trainer, from 0 on
	Trainers int          // 0: 1
	Scope    Scope        // "": own
	Logger   *slog.Logger // of services that go down and come back; nil: slog.Default()
}

// Validate reports every problem at once.
func (o AllOptions) Validate() error {
	var p option.Problems
	p.Add(o.Options.Validate())
	p.Check(o.Trainers >= 0, "trainers", o.Trainers, "1 or more")
	p.Check(o.Trainer >= 0 && o.Trainer < max(o.Trainers, 1), "trainer", o.Trainer, "0 to %d, with %d trainers",
		max(o.Trainers, 1)-1, max(o.Trainers, 1))
	p.Check(slices.Contains([]Scope{"", OwnParts, AllParts}, o.Scope), "scope", o.Scope, "own or global")
	return p.Err()
}

// partTimeout is how long a call is retried at one part, before it goes to another or does without.
const partTimeout = 300 * time.Millisecond

// Services is a connection to several services that hold tables in parts: outside a cluster part i of each table is at
// the i-th address, so every program names them in the same order. The addresses of a cluster are where to ask which
// node has what. Its methods may be called concurrently.
type Services struct {
	options AllOptions

	mu     sync.Mutex
	links  []*link // of the addresses given, in order
	found  map[string]*link
	tables map[string]*partedState
}

// DialAll connects to several services. One must answer; the others may come later.
func DialAll(ctx context.Context, addresses []string, o AllOptions) (*Services, error) {
	if len(addresses) == 0 || len(addresses) > parted.MaxParts {
		return nil, fmt.Errorf("addresses: %d of them: want 1 to %d", len(addresses), parted.MaxParts)
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o.Options, o.Scope, o.Trainers = o.Options.withDefaults(), cmp.Or(o.Scope, OwnParts), max(o.Trainers, 1)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	s := &Services{options: o, found: make(map[string]*link), tables: make(map[string]*partedState)}
	for i, address := range addresses {
		l, err := s.link(address)
		if err == nil && slices.Contains(s.links, l) {
			err = fmt.Errorf("addresses: %s: want it once, it is number %d and %d", address, slices.Index(s.links, l), i)
		}
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		s.links = append(s.links, l)
	}
	errs := make([]error, len(s.links))
	together(len(s.links), func(i int) {
		if errs[i] = s.links[i].client.ping(ctx); errs[i] != nil {
			s.links[i].wentDown(errs[i])
		}
	})
	if !slices.Contains(errs, nil) {
		return nil, errors.Join(append(errs, s.Close())...)
	}
	return s, nil
}

// link returns the connection to an address.
func (s *Services) link(address string) (*link, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.options.Options
	o.RetryFor = min(partTimeout, o.RetryFor)
	if s.options.RetryFor < 0 {
		o.RetryFor = partTimeout
	}
	a, err := parseAddress(address)
	if err != nil {
		return nil, err
	}
	if l := s.found[a.String()]; l != nil {
		return l, nil
	}
	c, err := newClient(address, o)
	if err != nil {
		return nil, err
	}
	l := &link{client: c, log: s.options.Logger}
	s.found[a.String()] = l
	return l, nil
}

// Close ends the connections; leased batches that were not acknowledged go back.
func (s *Services) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, l := range s.found {
		errs = append(errs, l.client.Close())
	}
	return errors.Join(errs...)
}

// Table returns a table in parts by its name, whether the services have it or not.
func (s *Services) Table(name string) *PartedTable {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tables[name] == nil {
		s.tables[name] = newPartedState()
	}
	return &PartedTable{services: s, name: name, partedState: s.tables[name]}
}

// Create creates a table in parts, one on each service, unless they exist with the same definition: capacities and the
// bounds of gate and limiter are the table's. In a cluster [Services.CreateParts] sets the number of parts.
func (s *Services) Create(ctx context.Context, definition wire.Table) (wire.TableInfo, error) {
	return s.CreateParts(ctx, definition, 0)
}

// CreateParts is [Services.Create] with a number of parts; 0: as many as the table has, or else as there are addresses.
func (s *Services) CreateParts(ctx context.Context, definition wire.Table, parts int) (wire.TableInfo, error) {
	there, clustered, err := s.locate(ctx, definition.Name)
	if err != nil {
		return wire.TableInfo{}, err
	}
	n := cmp.Or(parts, len(there), len(s.links))
	if len(there) > 0 && n != len(there) {
		return wire.TableInfo{}, fmt.Errorf("parts: %d: want %d, as table %s has", n, len(there), definition.Name)
	}
	if n < 1 || n > parted.MaxParts || !clustered && n != len(s.links) {
		return wire.TableInfo{}, fmt.Errorf("parts: %d: want %d, one on each service; in a cluster 1 to %d", n,
			len(s.links), parted.MaxParts)
	}
	w := s.Table(definition.Name)
	list := make([]*part, n)
	for i := range list {
		name := definition.Name
		switch {
		case len(there) > 0:
			name = there[i].Table
		case clustered && n > 1:
			name += "." + strconv.Itoa(i)
		}
		l := s.links[i%len(s.links)]
		_, downs := l.up() // a table that is not there yet has nothing to catch up with
		list[i] = &part{number: i, link: l, table: l.client.Table(name), downs: downs}
	}
	infos := make([]wire.TableInfo, n)
	w.setParts(list, clustered)
	create := func(first, end int) error {
		return w.each(ctx, list[first:end], true, func(i int, t *Table) (err error) {
			share := PartOf(definition, n, first+i)
			share.Name = t.name
			infos[first+i], err = t.client.Create(ctx, share)
			return err
		})
	}
	// A cluster finds the parts from 0 on: with the first part made last, a table that lacks parts is not found.
	if err = create(1, n); err == nil {
		err = create(0, 1)
	}
	if err != nil {
		w.setParts(nil, false)
		return wire.TableInfo{}, err
	}
	return joinInfo(definition.Name, infos), nil
}

// Drop removes all parts of a table.
func (s *Services) Drop(ctx context.Context, name string) error {
	w := s.Table(name)
	parts, err := w.resolve(ctx)
	if err != nil {
		return err
	}
	dropped, missing := false, error(nil)
	for i := range slices.Backward(parts) { // a cluster looks for parts from 0 on, so those that remain are found
		err = w.each(ctx, parts[i:i+1], true, func(_ int, t *Table) error { return t.client.Drop(ctx, t.name) })
		switch {
		case errors.Is(err, wire.ErrNotFound): // an earlier call has dropped it
			missing, err = err, nil
		case err == nil:
			dropped = true
		}
		if err != nil {
			break
		}
	}
	w.setParts(nil, false)
	w.forget(0, false)
	if err == nil && !dropped {
		err = missing
	}
	return err
}

// locate asks where the parts of a table are. Outside a cluster they are at the addresses given, and nil is returned.
func (s *Services) locate(ctx context.Context, name string) (parts []wire.Part, clustered bool, err error) {
	var lost error
	for tries := s.attempts(); ; {
		for _, l := range s.links {
			if lost = l.ready(); lost != nil {
				continue
			}
			answer, err := l.locate(ctx, name)
			lost = err
			switch {
			case errors.Is(err, wire.ErrNotFound):
				return nil, false, nil
			case errors.Is(err, ErrUnreachable):
				continue
			case err != nil:
				return nil, false, err
			case !answer.Cluster:
				return nil, false, nil
			}
			return answer.Parts, true, nil
		}
		if !tries.again(ctx, true) {
			return nil, false, lost
		}
	}
}

// attempts are those of one call at services that are down.
type attempts struct {
	services *Services
	began    time.Time
	last     bool // the last one is under way
}

func (s *Services) attempts() *attempts { return &attempts{services: s, began: time.Now()} }

// again reports whether to try again. A call that waits does so every 50 ms until RetryFor is over; any call makes one
// more attempt, after a look at every service that is down: they may be back since they were found so.
func (a *attempts) again(ctx context.Context, waits bool) bool {
	s := a.services
	if a.last {
		return false
	}
	over := s.options.RetryFor >= 0 && time.Since(a.began) >= s.options.RetryFor
	a.last = over || !waits
	s.mu.Lock()
	links := slices.Collect(maps.Values(s.found))
	s.mu.Unlock()
	if a.last {
		together(len(links), func(i int) { links[i].look(ctx) })
		return ctx.Err() == nil
	}
	for _, l := range links {
		l.retryNow()
	}
	timer := time.NewTimer(firstDown / 2)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Pauses before a service that is down is tried again grow from the first to the longest.
const (
	firstDown = 100 * time.Millisecond
	maxDown   = 2 * time.Second
)

// link is a connection to a service that may be down.
type link struct {
	client *Client
	log    *slog.Logger

	mu      sync.Mutex
	why     error // it is down; nil: it is up
	downs   int   // how often it went down
	again   time.Time
	pause   time.Duration
	probing bool
}

// ready returns an error while the service is down. Now and then it is tried, by a goroutine, so that no call waits.
func (l *link) ready() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.why == nil {
		return nil
	}
	if !l.probing && !time.Now().Before(l.again) {
		l.probing = true
		go l.probe()
	}
	return fmt.Errorf("%w: %s is down: %w", ErrUnreachable, l.client.address, l.why)
}

// retryNow has the next call of ready try a service that is down, without a pause.
func (l *link) retryNow() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.again = time.Time{}
}

// look tries a service that is down and waits for the outcome, for at most quiet.
func (l *link) look(ctx context.Context) error {
	if up, _ := l.up(); !up {
		l.settle(ctx, l.ping(ctx))
	}
	return l.ready()
}

// locate asks where the parts of a table are.
func (l *link) locate(ctx context.Context, name string) (answer wire.Location, err error) {
	err = l.during(ctx, func() error {
		return l.client.act(ctx, name, wire.Locate, wire.TableRequest{Table: name}, &answer, 0)
	})
	return answer, err
}

// quiet is how long a call may take before the service is asked whether it is there, and how long that may take: a
// machine that is gone refuses nothing.
const quiet = 2 * time.Second

// during carries out a call, which ends if the service is no longer there, and notes whether it is down.
func (l *link) during(ctx context.Context, call func() error) error {
	over := make(chan struct{})
	watch := time.AfterFunc(quiet, func() { l.watch(over) })
	err := call()
	watch.Stop()
	close(over)
	l.settle(ctx, err)
	return err
}

func (l *link) watch(over <-chan struct{}) {
	tick := time.NewTicker(quiet)
	defer tick.Stop()
	for l.ping(context.Background()) == nil {
		select {
		case <-tick.C:
		case <-over:
			return
		}
	}
	select {
	case <-over:
	default:
		l.client.cut()
	}
}

// ping returns an error if the service is not there.
func (l *link) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, quiet)
	defer cancel()
	err := l.client.retryFor(ctx, l.client.lookTime, 0, l.client.listActions)
	switch {
	case errors.Is(err, ErrUnreachable):
		return err
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return nil
}

func (l *link) probe() {
	l.settle(context.Background(), l.ping(context.Background()))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.probing = false
}

// up reports whether the service is up, and how often it has been down.
func (l *link) up() (now bool, downs int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.why == nil, l.downs
}

// settle notes from the outcome of a call whether the service is down.
func (l *link) settle(ctx context.Context, err error) {
	if errors.Is(err, ErrUnreachable) {
		l.wentDown(err)
		return
	}
	if err != nil && ctx.Err() != nil {
		return // nobody knows
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.why != nil {
		l.log.Info("service is back: its rollouts are drawn again", "address", l.client.Address())
	}
	l.why, l.pause = nil, 0
}

func (l *link) wentDown(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.why == nil {
		l.downs++
		l.log.Warn("service is down: batches come from the other parts until it is back", "address",
			l.client.Address(), "error", err)
	}
	l.why, l.pause = err, min(max(2*l.pause, firstDown), maxDown)
	l.again = time.Now().Add(l.pause)
}

// together runs n calls at once and waits for all.
func together(n int, call func(i int)) {
	var wait sync.WaitGroup
	for i := 1; i < n; i++ {
		wait.Go(func() { call(i) })
	}
	if n > 0 {
		call(0)
	}
	wait.Wait()
}

// PartOf returns the definition of one part of a table in n parts: its share of capacity, capacity_bytes and min_size,
// of the gate's rollouts_per_update and the limiter's error_buffer, rounded up to what a part must have, and the seed
// plus its number.
func PartOf(d wire.Table, parts, number int) wire.Table {
	o := d.Options.WithDefaults()
	d.Capacity = parted.Share(o.Capacity, parts, max(o.Shards, 1))
	d.CapacityBytes = (o.CapacityBytes + int64(parts) - 1) / int64(parts)
	d.MinSize = parted.Share(o.MinSize, parts, 1)
	d.Seed += uint64(number)
	if d.Limiter != nil {
		l := *d.Limiter
		l.ErrorBuffer = max(l.ErrorBuffer/float64(parts), 1, l.SamplesPerInsert*float64(max(o.GroupSize, 1)))
		d.Limiter = &l
	}
	if d.Gate != nil {
		g := *d.Gate
		g.RolloutsPerUpdate /= float64(parts)
		d.Gate = &g
	}
	return d
}

// joinDefinitions returns the definition of a table from those of its parts: the sums of what [PartOf] divides.
func joinDefinitions(name string, parts []*wire.Table) *wire.Table {
	d := *parts[0]
	d.Name = name
	d.Capacity, d.CapacityBytes, d.MinSize = 0, 0, 0
	for _, p := range parts {
		d.Capacity, d.MinSize = d.Capacity+p.Capacity, d.MinSize+p.MinSize
		d.CapacityBytes += p.CapacityBytes
	}
	n := float64(len(parts))
	if d.Limiter != nil {
		d.Limiter = &wire.Limiter{SamplesPerInsert: d.Limiter.SamplesPerInsert, ErrorBuffer: d.Limiter.ErrorBuffer * n}
	}
	if d.Gate != nil {
		g := *d.Gate
		g.RolloutsPerUpdate *= n
		d.Gate = &g
	}
	return &d
}
