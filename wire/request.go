package wire

// Requests and answers travel as JSON: a ticket or an action's body, and the app_metadata of Flight messages.

// SampleRequest asks for a batch: the ticket of a DoGet, or the app_metadata of a message on a DoExchange stream, whose
// descriptor's path names the table.
type SampleRequest struct {
	Table     string `json:"table,omitempty"` // of a DoGet
	Size      int    `json:"size"`            // rollouts
	Fresh     int    `json:"fresh,omitempty"` // of them, never handed out as fresh before
	Shard     int    `json:"shard,omitempty"`
	RequestID string `json:"request_id,omitempty"` // a repeated one gets the same batch

	// TimeoutMS is how long to wait while the table holds too little or the limiter holds samples back, in milliseconds: 0 not
	// at all; absent as long as the call's deadline allows.
	TimeoutMS *int64 `json:"timeout_ms,omitempty"`

	Columns []string `json:"columns,omitempty"` // of the sampling schema; none: all that the table has. On a stream the first request's hold.

	// UseAtDraw counts the draws as used at once, as replay.Table.Sample does; otherwise the batch is leased until the stream's
	// next request, or until a DoGet has finished.
	UseAtDraw bool `json:"use_at_draw,omitempty"`

	// Export, of a DoGet, streams the whole table in order of ids instead, Size rows (0: 256) to a record batch; nothing is drawn.
	Export bool `json:"export,omitempty"`

	// Of streams only.
	Prefetch      *int     `json:"prefetch,omitempty"`       // batches drawn and packed before they are asked for; absent: 1
	PrefetchSlack int      `json:"prefetch_slack,omitempty"` // versions by which a prefetched batch may be older than the table at hand-over
	Acknowledge   []uint64 `json:"acknowledge,omitzero"`     // batches of this stream, none if empty; with neither of the two lists: all handed over before
	Release       []uint64 `json:"release,omitzero"`         // batches of this stream that go back unused
}

// BatchInfo comes with each batch as app_metadata. Error stands alone, in a message without a batch: the stream goes on.
type BatchInfo struct {
	Batch   uint64  `json:"batch,omitempty"` // its id
	Version int32   `json:"version"`         // of the table when it was drawn
	Shard   int     `json:"shard,omitempty"` //
	Rows    int     `json:"rows"`            // rollouts
	Present int     `json:"present"`         // rollouts in the table, after the draw
	Error   *Status `json:"error,omitempty"` // starved, where a stream's request timed out
}

// InsertRequest may come with each record batch of a DoPut as app_metadata. The descriptor's path names the table. One
// record batch is one insertion: all of its groups enter, or none.
type InsertRequest struct {
	BatchID   string `json:"batch_id,omitempty"`   // repeated, it adds nothing and gets the first ids
	GroupSize int    `json:"group_size,omitempty"` // of every group; others are refused
	Grant     uint64 `json:"grant,omitempty"`      // of [Start], that these groups were started under
	TimeoutMS *int64 `json:"timeout_ms,omitempty"` // how long to wait for room, or for the limiter, in milliseconds; absent: as long as the call's deadline allows
}

// InsertAnswer is the app_metadata of a PutResult: sent after the journal's promise holds.
type InsertAnswer struct {
	BatchID string   `json:"batch_id,omitempty"`
	IDs     []uint64 `json:"ids"`     // of the rows in order; with unit step of their turns
	Version int32    `json:"version"` // of the table
	Present int      `json:"present"` // rollouts in the table
}
