package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/rollout"
)

// Sink takes what workers make. It is called from the machine's goroutine only.
type Sink interface {
	// Insert adds whole groups. An error that wraps rollout.ErrFull means that nothing was added and that sampling or a
	// new version will make room: the worker stalls and tries again.
	Insert(ctx context.Context, groups ...rollout.Group) ([]rollout.ID, error)
	// Len returns how many rollouts there are. Trainers may wait as long as it grows.
	Len(ctx context.Context) (int, error)
}

// Buffer stands between workers and trainers. *replay.Table implements it.
type Buffer interface {
	Sink
	Source
}

// Generator makes groups of rollouts. Start is called from the machine's goroutine, a Generation from other goroutines,
// one at a time.
type Generator interface {
	Start(job Job) (Generation, error)
}

// Generation is a group being generated. It must be a pure function of the job and of the sequence of (weights,
// positions) given to Continue.
type Generation interface {
	// Continue decodes up to n more positions of every unfinished row with weights w, all of them if n <= 0. It reports
	// whether every row has finished.
	Continue(ctx context.Context, w Weights, n int) (done bool, err error)
	// Rollouts returns the finished group with Text filled in. It sets rewards unless the task is a task.Verifier,
	// which the machine then asks for them.
	Rollouts() ([]*rollout.Rollout, error)
}

// Job is one group of rollouts to generate.
type Job struct {
	Number       uint64 // of the group within the run, from 0; random streams derive from it
	Worker       int
	Size         int // rollouts in the group
	Prompt       task.Prompt
	PromptNumber uint64 // of Prompt in task.Task.Train; equals Number without Prompts
	Replayed     bool   // Prompts chose a prompt that was asked before

	// Earlier is a rollout of the prompt, from before the job, that Answers gave; nil: none.
	Earlier *rollout.Rollout
}

// Answers gives jobs earlier rollouts of their prompts to begin like. It is called from the machine's goroutine only.
type Answers interface {
	// Answer returns an earlier rollout of the job's prompt, which is read only, or nil. It is called once per job, in
	// order of job numbers. Jobs that a resumed run generates again have the rollout that they had.
	Answer(job Job) *rollout.Rollout
}

// Prompts chooses what is generated next. It is called from the machine's goroutine only. *prompts.Chooser of package
// replay/prompts implements it.
type Prompts interface {
	// Choose returns the number of a job's training prompt (task.Task.Train) and whether the prompt is replayed. It is
	// called once per job, in order of job numbers, at the trainers' version v. Jobs that a resumed run generates again
	// are not chosen again.
	Choose(job uint64, v rollout.Version) (prompt uint64, replayed bool)
	// Report receives the group of a prompt, with its rewards, when it has entered the buffer at version v, or was
	// dropped (Options.FilterGroups). The rollouts are shared with the buffer: read only.
	Report(v rollout.Version, prompt uint64, replayed bool, rollouts []*rollout.Rollout) error
}

// Weights is an immutable set of parameters with its version. Tensors is opaque to the pipeline.
type Weights struct {
	Version rollout.Version
	Tensors any
}

// worker is one inference GPU.
type worker struct {
	account Account
	job     *activeJob // nil: none
	waiting int        // its groups in Machine.waiting
}

// activeJob is a job being generated, or parked.
type activeJob struct {
	job     Job
	start   float64 // as if it had never been parked, and always been on this worker
	timing  Timing
	end     float64   // when the worker is free again
	due     float64   // when its next event happens
	next    float64   // while it is parked, the share of its time after which its next event is due
	left    float64   // while it is parked, the share of its time until then
	weights []Weights // of the chunks so far, the one being decoded included
	earlier int       // chunks decoded before it was resumed
	gen     Generation
	work    *work // decodes the current chunk

	// Set by work, read after it was awaited.
	done     bool
	rollouts []*rollout.Rollout
}

// startWorker gives a worker its next job, unless one of its groups waits for room (the worker stalls) or it is not the
// workers' turn.
func (m *Machine) startWorker(i int) error {
	w := &m.workers[i]
	switch {
	case w.job != nil:
		return nil
	case w.waiting > 0:
		w.account.switchTo(m.now, stalled)
		return nil
	case m.opts.Mode == Sync && !m.mayStart():
		w.account.switchTo(m.now, idle)
		return nil
	}
	w.account.switchTo(m.now, busy)
	if m.mayResume() {
		return m.resumeJob(i)
	}
	m.turn.started()
	job := m.chooseJob(i)
	gen, err := m.parts.Generator.Start(job)
	if err != nil {
		return fmt.Errorf("start job %d on worker %d: %w", job.Number, i, err)
	}
	timing, err := m.opts.timing(job.Number, i)
	if err != nil {
		return err
	}
	w.job = &activeJob{job: job, gen: gen, start: m.now, timing: timing, end: m.now + timing.Worker}
	m.decodeChunk(w.job)
	return nil
}

// chooseJob returns the next job, with the prompt chosen for it.
func (m *Machine) chooseJob(worker int) Job {
	n := m.nextJob
	m.nextJob++
	prompt, replayed := n, false
	if m.parts.Prompts != nil {
		prompt, replayed = m.parts.Prompts.Choose(n, m.version)
	}
	job := m.newJob(n, worker, prompt, replayed)
	if m.parts.Answers != nil {
		job.Earlier = m.parts.Answers.Answer(job)
	}
	return job
}

func (m *Machine) newJob(n uint64, worker int, prompt uint64, replayed bool) Job {
	return Job{
		Number: n, Worker: worker, Size: m.opts.Group,
		Prompt: m.parts.Task.Train(prompt), PromptNumber: prompt, Replayed: replayed,
	}
}

// decodeChunk starts the next chunk of a job with the newest weights. Chunk k (from 0) of n ends when the share (k+1)/n
// of the group's time has passed.
func (m *Machine) decodeChunk(a *activeJob) {
	k := len(a.weights)
	a.weights = append(a.weights, m.weights.newest)
	a.due = a.end
	if k+1 < m.opts.chunks() {
		a.due = a.start + float64(a.timing.Worker*m.opts.chunkShare(k+1))
	}
	m.submitJob(a, k)
	m.schedule(Event{Time: a.due, Kind: decodeEnd, Worker: a.job.Worker, Number: a.job.Number})
}

// submitJob starts decoding a job's chunks from the given one on in the pool.
func (m *Machine) submitJob(a *activeJob, from int) {
	weights := slices.Clip(a.weights)
	a.work = m.pool.submit(a.due, &m.wall.Generate, func(ctx context.Context) error {
		return m.generate(ctx, a, weights, from)
	})
}

// generate decodes chunks from .. len(weights)-1 of a job and, when every row has finished, verifies its rollouts. It
// runs in the pool and writes only the job's results.
func (m *Machine) generate(ctx context.Context, a *activeJob, weights []Weights, from int) error {
	n := m.opts.chunks()
	for k := from; k < len(weights); k++ {
		if a.done {
			return fmt.Errorf("every row had finished before chunk %d, which was decoded when the state was saved", k)
		}
		positions := m.opts.Chunk
		if k == n-1 {
			positions = 0 // all that remain
		}
		done, err := a.gen.Continue(ctx, weights[k], positions)
		if err != nil {
			return err
		}
		a.done = done
	}
	if !a.done {
		if len(weights) == n {
			return errors.New("rows remain unfinished after all positions were decoded")
		}
		return nil
	}
	rs, err := a.gen.Rollouts()
	if err != nil {
		return err
	}
	if len(rs) != a.job.Size {
		return fmt.Errorf("generator returned %d rollouts for a group of %d", len(rs), a.job.Size)
	}
	if v, ok := m.parts.Task.(task.Verifier); ok {
		if err := task.Reward(v, a.job.Prompt, a.job.Number, rs); err != nil {
			return err
		}
	}
	a.rollouts = rs
	return nil
}

// endChunk awaits a chunk. The worker then starts the next chunk, or sends its group off and looks for a new job.
func (m *Machine) endChunk(e Event) error {
	w := &m.workers[e.Worker]
	a := w.job
	if err := m.pool.await(a.work); err != nil {
		return fmt.Errorf("generate job %d on worker %d: %w", a.job.Number, e.Worker, err)
	}
	switch {
	case e.Time >= a.end:
		w.job = nil
		m.schedule(Event{Time: m.now, Kind: workerStart, Worker: e.Worker})
		return m.awaitReward(a)
	case a.done: // finished early; the cost model still counts the whole time
		a.due = a.end
		m.schedule(Event{Time: a.end, Kind: decodeEnd, Worker: e.Worker, Number: e.Number})
	case m.budgetSpent(a):
		m.park(e.Worker, 0)
		m.schedule(Event{Time: m.now, Kind: workerStart, Worker: e.Worker})
	default:
		m.decodeChunk(a)
	}
	return nil
}

// generated is a group on its way to the buffer: its rewards are not known yet, or it waits for room.
type generated struct {
	worker   int
	prompt   uint64 // number
	replayed bool
	rollouts []*rollout.Rollout

	held bool    // until the workers' next turn, or until the window reaches it
	left float64 // of its time until its rewards are known, if it is held
}

// awaitReward sends a group off when its worker is done with it. It reaches the buffer when its last rollout has ended
// and its rewards are known.
func (m *Machine) awaitReward(a *activeJob) error {
	n := a.job.Number
	latency := m.opts.rewardLatency(n)
	if !nonNegative(latency) {
		return fmt.Errorf("reward latency of job %d: %g: want a finite number, 0 or more", n, latency)
	}
	m.groups[n] = generated{worker: a.job.Worker, prompt: a.job.PromptNumber, replayed: a.job.Replayed,
		rollouts: a.rollouts}
	m.schedule(Event{Time: m.now + a.timing.Tail + latency, Kind: rewardArrive, Worker: a.job.Worker, Number: n})
	return nil
}

// enqueueGroup puts a rewarded group behind those that wait for room, unless FilterGroups drops it. It is held where the
// turn has its groups already, until the next, and where it is outside of the Window, until that reaches it.
func (m *Machine) enqueueGroup(e Event) error {
	if m.opts.Mode == Sync && m.turn.missing() == 0 || m.opts.Window > 0 && e.Number >= m.windowEnd() {
		m.hold(e.Number, 0)
		return nil
	}
	if m.opts.FilterGroups {
		keep, err := m.filter(e.Number)
		if err != nil || !keep {
			return err
		}
	}
	// Groups enter in the order in which their rewards came. So this one is only tried if none waits before it, and its
	// worker stalls until it has entered.
	m.waiting = append(m.waiting, e.Number)
	m.workers[e.Worker].waiting++
	if len(m.waiting) > 1 {
		return nil // the first one found no room
	}
	return m.insertGroups()
}

// insertGroups inserts waiting groups until the buffer has no room for the first.
func (m *Machine) insertGroups() error {
	for len(m.waiting) > 0 {
		n := m.waiting[0]
		g := m.groups[n]
		ids, err := m.parts.Buffer.Insert(m.pool.ctx, rollout.Group{Rollouts: g.rollouts, Size: len(g.rollouts)})
		if errors.Is(err, rollout.ErrFull) {
			if m.opts.Mode == Async {
				m.requestDraw() // trainers that wait for another's shard may make room by drawing theirs
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("insert the group of job %d: %w", n, err)
		}
		m.waiting = m.waiting[1:]
		m.leave(n)
		m.counts.insert(g, len(ids))
		if err := m.reportPrompt(n, g); err != nil {
			return err
		}
		if m.hooks.OnInsert != nil {
			m.hooks.OnInsert(Insertion{m.now, n, g.worker, ids, g.rollouts, g.prompt, g.replayed})
		}
		m.releaseWorker(g.worker)
		// Waiting trainers try again; in synchronous mode their turn comes with the last group.
		if m.opts.Mode == Async {
			m.requestDraw()
		} else if m.turn.inserted() {
			m.endWorkersTurn()
		}
	}
	return nil
}

// hold has a generated group wait; left is its time until its rewards are known, once release lets it go.
func (m *Machine) hold(job uint64, left float64) {
	g := m.groups[job]
	g.held, g.left = true, left
	m.groups[job] = g
}

// release lets the groups go on that are held and below a number.
func (m *Machine) release(below uint64) {
	for n, g := range m.groups {
		if g.held && n < below {
			m.schedule(Event{Time: m.now + g.left, Kind: rewardArrive, Worker: g.worker, Number: n})
			g.held, g.left = false, 0
			m.groups[n] = g
		}
	}
}

// leave forgets a group that entered the buffer or was dropped. The window may move on with it.
func (m *Machine) leave(job uint64) {
	delete(m.groups, job)
	if m.opts.Window > 0 {
		m.release(m.windowEnd())
	}
}

// windowEnd returns the number of the first job outside of the window, which begins with the first whose group has not
// left yet.
func (m *Machine) windowEnd() uint64 {
	first := m.nextJob
	for i := range m.workers {
		if a := m.workers[i].job; a != nil {
			first = min(first, a.job.Number)
		}
	}
	for n := range m.groups {
		first = min(first, n)
	}
	return first + uint64(m.opts.Window)
}

// reportPrompt tells Prompts what came of a job.
func (m *Machine) reportPrompt(n uint64, g generated) error {
	if m.parts.Prompts == nil {
		return nil
	}
	if err := m.parts.Prompts.Report(m.version, g.prompt, g.replayed, g.rollouts); err != nil {
		return fmt.Errorf("report the group of prompt %d, job %d: %w", g.prompt, n, err)
	}
	return nil
}

// Filling is how far the present batch is filled with FilterGroups, in rollouts: those generated for it and, of them,
// those kept. Both are 0 without it.
type Filling struct{ Generated, Kept int }

// filter drops a group whose rewards are all equal and reports whether it kept it. In synchronous mode another group
// takes its place in the turn; in asynchronous mode workers generate on anyway.
func (m *Machine) filter(n uint64) (keep bool, err error) {
	g, f, size := m.groups[n], &m.filling, m.opts.fillSize()
	keep = slices.ContainsFunc(g.rollouts, func(r *rollout.Rollout) bool { return r.Reward != g.rollouts[0].Reward })
	f.Generated += len(g.rollouts)
	if keep {
		if f.Kept += len(g.rollouts); f.Kept >= size {
			*f = Filling{}
			return true, nil
		}
	} else {
		m.leave(n)
		m.counts.drop(g)
		if err := m.reportPrompt(n, g); err != nil {
			return false, err
		}
		if m.hooks.OnDrop != nil {
			m.hooks.OnDrop(Insertion{m.now, n, g.worker, nil, g.rollouts, g.prompt, g.replayed})
		}
	}
	if f.Generated >= m.opts.MaxGenBatches*size {
		return false, fmt.Errorf("%w at time %g: of %d rollouts generated for a batch of %d, %d are in groups whose "+
			"rewards differ: give prompts that are neither too hard nor too easy, raise pipeline.max_gen_batches (%d) "+
			"or group (%d), or set filter_groups: false",
			ErrStuck, m.now, f.Generated, size, f.Kept, m.opts.MaxGenBatches, m.opts.Group)
	}
	if !keep && m.opts.Mode == Sync {
		m.turn.Open--
		m.turn.Groups++
		m.wakeWorkers()
	}
	return keep, nil
}

// wakeWorkers lets idle workers look for a job.
func (m *Machine) wakeWorkers() {
	for i := range m.workers {
		if w := &m.workers[i]; w.job == nil && w.account.Doing == idle {
			m.schedule(Event{Time: m.now, Kind: workerStart, Worker: i})
		}
	}
}

// releaseWorker restarts a stalled worker when none of its groups waits any more.
func (m *Machine) releaseWorker(i int) {
	w := &m.workers[i]
	w.waiting--
	if w.waiting == 0 && w.account.Doing == stalled {
		m.schedule(Event{Time: m.now, Kind: workerStart, Worker: i})
	}
}

// published is the weights outside the learner.
type published struct {
	newest Weights   // that the workers have
	coming []Weights // on their way to the workers, oldest first
}

// publishWeights sends the learner's weights to the workers if PublishEvery divides their version.
func (m *Machine) publishWeights() error {
	if m.version%rollout.Version(m.opts.PublishEvery) != 0 {
		return nil
	}
	w := m.parts.Learner.Weights()
	if w.Version != m.version {
		return fmt.Errorf("learner's weights have version %d after update %d", w.Version, m.version)
	}
	m.weights.coming = append(m.weights.coming, w)
	m.schedule(Event{Time: m.now + m.opts.WeightTransfer, Kind: weightsArrive, Number: uint64(w.Version)})
	return nil
}

// receiveWeights gives the workers the oldest weights on their way.
func (m *Machine) receiveWeights() {
	w := &m.weights
	held := m.tooManyInFlight()
	w.newest = w.coming[0]
	w.coming = slices.Delete(w.coming, 0, 1)
	m.trainer.starvation.until = 0 // rollouts of the new weights may end it
	if m.opts.Mode == Sync && m.turn == (Turn{}) && len(w.coming) == 0 {
		m.startWorkersTurn()
	} else if held && (m.opts.Mode == Async || m.turn.Updates > 0) {
		m.requestDraw()
	}
}

// tooManyInFlight reports whether another update would exceed UpdatesInFlight.
func (m *Machine) tooManyInFlight() bool {
	return m.opts.UpdatesInFlight > 0 && len(m.weights.coming) >= m.opts.UpdatesInFlight
}
