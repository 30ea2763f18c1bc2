package demo

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/killick-io/killick/examples/orders/check"
)

// Result is the verdict on a run, and what the checker cannot know of it.
type Result struct {
	OK      bool    `json:"ok"` // everything adds up
	Broker  string  `json:"broker"`
	Seconds float64 `json:"seconds"`
	Kill    Kill    `json:"kill"`
	// Successor is the process that went on after the kill and exited with 0.
	Successor int           `json:"successor"`
	Report    *check.Report `json:"report"`
}

// Kill is the end of the first worker.
type Kill struct {
	PID         int   `json:"pid"`
	Through     int64 `json:"through"`      // orders that had had their effect: notifications and dead letters
	Finished    int64 `json:"finished"`     // orders that commits and completion maps knew as finished
	SinceCommit int64 `json:"since_commit"` // effects since the last commit; a part of the bound of duplicates
}

// WriteText writes the result for people. The error is w's.
func (r *Result) WriteText(w io.Writer) error {
	_, err := fmt.Fprintf(w, "\nThe order story on %s, %.1f seconds.\n"+
		"Worker %d was killed with SIGKILL when %d of %d orders were through; worker %d went on and exited with 0.\n\n",
		r.Broker, r.Seconds, r.Kill.PID, r.Kill.Through, r.Report.Records, r.Successor)
	if err != nil {
		return err
	}
	return r.Report.WriteText(w)
}

// WriteJSON writes it for programs: one object. The error is w's.
func (r *Result) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}
