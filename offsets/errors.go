package offsets

import "errors"

// Errors of a Ledger. None of them is worth a retry.
var (
	// ErrRewind: a batch lies below the ledger's next offset or is not ascending. The log went back
	// (truncated, topic made anew) or the batch belongs to another assignment. The ledger is unchanged.
	// The owner closes it and opens a new one where it will read next.
	ErrRewind = errors.New("offsets: delivery goes back")

	// ErrRange: an offset cannot exist in a Kafka log (negative, or without a successor). The input is broken;
	// the owner stops the partition.
	ErrRange = errors.New("offsets: offset out of range")

	// ErrClosed: the assignment is over. The owner drops the batch; its next owner reads it again.
	ErrClosed = errors.New("offsets: ledger is closed")
)

// Errors of Decode. After each of them nothing is known to be done. At-least-once goes on without a map and
// replays; a guarantee that builds on the map stops the partition and says why.
var (
	// ErrForeign: the metadata is not ours (empty, a member id, another framework's). Expected once, when a
	// group is taken over from another program.
	ErrForeign = errors.New("offsets: commit metadata is not a completion map of killick")

	// ErrVersion: the map is ours, in a version that this build cannot read. It is ErrForeign, too. Expected
	// while a newer release is rolled back.
	ErrVersion error = &versionSentinel{}

	// ErrCorrupt: the map is ours and damaged: cut off, changed, or with bytes too many.
	ErrCorrupt = errors.New("offsets: completion map is corrupt")

	// ErrBase: the map was made for another offset than the committed one, for example because a tool moved
	// the group's offset and kept the metadata.
	ErrBase = errors.New("offsets: completion map belongs to another offset")
)

// versionSentinel is the type of ErrVersion, which has to be ErrForeign as well for callers who do not care.
type versionSentinel struct{}

func (*versionSentinel) Error() string { return "offsets: completion map has an unknown version" }
func (*versionSentinel) Unwrap() error { return ErrForeign }
