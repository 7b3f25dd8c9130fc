package run

// Failure is an error in the midst of a run, rather than in its configuration or its checkpoint: the loss is no number any more, the
// trainers can never have a batch, or the disk is full. What the run wrote until then stands in its folder.
type Failure struct {
	Dir string // of the run
	Err error
}

func (f *Failure) Error() string { return "run " + f.Dir + ": " + f.Err.Error() }

// Unwrap returns what went wrong.
func (f *Failure) Unwrap() error { return f.Err }

// Resumable reports whether a folder holds a checkpoint that [Resume] goes on from.
func Resumable(dir string) bool {
	_, err := findCheckpoint(dir)
	return err == nil
}
