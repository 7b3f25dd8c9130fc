package wire

// The actions of DoAction. Bodies and results are JSON; the comment names their types.
const (
	CreateTable      = "create_table"      // Table -> TableInfo; one that is there with the same definition is left alone
	DropTable        = "drop_table"        // TableRequest -> nothing
	Advance          = "advance"           // VersionRequest -> TableInfo
	Rewind           = "rewind"            // VersionRequest -> TableInfo
	UpdatePriorities = "update_priorities" // PriorityUpdate -> TableInfo
	ReportDraws      = "report"            // DrawReport -> TableInfo
	Acknowledge      = "acknowledge"       // SettleRequest -> TableInfo
	Release          = "release"           // SettleRequest -> TableInfo
	Statistics       = "stats"             // TableRequest -> rollout.Stats as JSON, with TableInfo and the service's own; see docs/service.md
	Info             = "info"              // TableRequest -> TableInfo
	Checkpoint       = "checkpoint"        // CheckpointRequest -> CheckpointAnswer; everything of the table under a name
	Restore          = "restore"           // CheckpointRequest -> TableInfo
	Start            = "start"             // StartRequest -> StartAnswer; how many groups may be started now
	Abandon          = "abandon"           // AbandonRequest -> TableInfo; groups that will not come
	PromptsNext      = "prompts_next"      // PromptsRequest -> PromptsAnswer
	PromptsReport    = "prompts_report"    // PromptResults -> TableInfo
)

// TableRequest names a table.
type TableRequest struct {
	Table string `json:"table"`
}

// TableInfo is what most actions answer with.
type TableInfo struct {
	Table      string `json:"table"`
	Version    int32  `json:"version"`
	Present    int    `json:"present"`
	Bytes      int64  `json:"bytes"`                // of payload
	Definition *Table `json:"definition,omitempty"` // of create_table and info, defaults filled in
}

// VersionRequest sets the table's version.
type VersionRequest struct {
	Table   string `json:"table"`
	Version int32  `json:"version"`
}

// PriorityUpdate gives rollouts new priorities: two lists of one length.
type PriorityUpdate struct {
	Table      string    `json:"table"`
	IDs        []uint64  `json:"ids"`
	Priorities []float64 `json:"priorities"` // finite, >= 0
}

// DrawReport is rollout.Feedback: what a trainer measured of its draws.
type DrawReport struct {
	Table     string      `json:"table"`
	RequestID string      `json:"request_id,omitempty"` // a repeated one counts once, as long as the service runs and has not had 1,000 others since
	Draws     []DrawFacts `json:"draws"`
}

// DrawFacts is what was measured of one draw; what is absent was not.
type DrawFacts struct {
	ID           uint64   `json:"id"`
	Staleness    int32    `json:"staleness"`
	Advantage    *float64 `json:"advantage,omitempty"`
	TDError      *float64 `json:"td_error,omitempty"`
	GradNorm     *float64 `json:"grad_norm,omitempty"`
	Tokens       float64  `json:"tokens,omitempty"`
	RatioSum     float64  `json:"ratio_sum,omitempty"`
	RatioSquares float64  `json:"ratio_squares,omitempty"`
}

// SettleRequest acknowledges or releases leased batches, all or none.
type SettleRequest struct {
	Table   string   `json:"table"`
	Batches []uint64 `json:"batches"`
}

// CheckpointRequest names a checkpoint, as tables are named. One of that name is replaced.
type CheckpointRequest struct {
	Table string `json:"table"`
	Name  string `json:"name"`
}

// CheckpointAnswer says what was saved.
type CheckpointAnswer struct {
	TableInfo
	Name      string `json:"name"`
	FileBytes int64  `json:"file_bytes"`
}

// StartRequest asks how many of so many groups may be started now.
type StartRequest struct {
	Table     string `json:"table"`
	Groups    int    `json:"groups"`               // wanted
	GroupSize int    `json:"group_size,omitempty"` // rollouts in each; 0: the table's
	TimeoutMS int64  `json:"timeout_ms,omitempty"` // how long to wait for the first
}

// StartAnswer grants groups, none after the timeout. They are to be inserted under the grant's number, or abandoned.
type StartAnswer struct {
	Grant          uint64  `json:"grant,omitempty"`
	Groups         int     `json:"groups"`
	Version        int32   `json:"version"`
	ExpiresSeconds float64 `json:"expires_seconds,omitempty"`
}

// AbandonRequest gives granted groups back.
type AbandonRequest struct {
	Table  string `json:"table"`
	Grant  uint64 `json:"grant"`
	Groups int    `json:"groups"`
}

// PromptsRequest asks for prompts of a batch of so many to replay.
type PromptsRequest struct {
	Table string `json:"table"`
	Batch int    `json:"batch"`
}

// Prompt is prompts.Prompt.
type Prompt struct {
	ID  string `json:"id"`
	Ref uint64 `json:"ref,omitempty"`
}

// PromptsAnswer is prompts to ask again, at most fraction x batch.
type PromptsAnswer struct {
	Prompts []Prompt `json:"prompts"`
	Version int32    `json:"version"`
}

// PromptResults says what came of prompts.
type PromptResults struct {
	Table   string         `json:"table"`
	Results []PromptResult `json:"results"`
}

// PromptResult is prompts.Result.
type PromptResult struct {
	Prompt
	Correct  int  `json:"correct"`
	Total    int  `json:"total"`
	Replayed bool `json:"replayed,omitempty"`
}
