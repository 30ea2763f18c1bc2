package demo

import "fmt"

// The worker is killed while the share of records that have had their effect lies between earliest and latest percent.
const (
	earliest  = 30
	preferred = 45 // from here on a commit whose maps have something to tell is good
	anyway    = 60 // from here on any new commit is
	latest    = 70
)

// moment says whether this is the time to kill. It prefers the moment right after a commit above whose floor much has
// finished, since an order that waits for its next payment call holds it: that is where the completion map is worth
// something. The error says that it is too late.
func moment(r *round, records int) (now bool, _ error) {
	done := percent(r.effects(), records)
	switch {
	case done >= latest && !r.committed():
		return false, fmt.Errorf("demo: %d %% of the records are through and nothing is committed: there is nothing to kill the worker for", done)
	case done > latest:
		return false, fmt.Errorf("demo: %d %% of the records were through before the worker could be killed, want at most %d %%", done, latest)
	case done < earliest || !r.committed():
		return false, nil
	case done >= (anyway+latest)/2:
		return true, nil
	case !r.fresh:
		return false, nil
	case done >= anyway:
		return true, nil
	}
	return done >= preferred && r.above() >= records/100, nil
}

func percent(n int64, of int) int64 { return 100 * n / int64(of) }
