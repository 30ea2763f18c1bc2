package worker

import (
	"errors"
	"flag"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/internal/engine"
	"github.com/killick-io/killick/internal/kafka"
)

// Errors of Run, for errors.Is.
var (
	// ErrDrain says that trees were still open when the drain limit passed. They are not
	// committed and run again after the next start.
	ErrDrain = engine.ErrDrain
	// ErrUnreachable says that no broker could be talked to at start.
	ErrUnreachable = kafka.ErrUnreachable
	// ErrAuth says that the brokers refused the credentials at start.
	ErrAuth = kafka.ErrAuth
	// ErrFenced says that another worker with the same Place has joined the group.
	ErrFenced = errors.New("worker: fenced")
	// ErrStuck says that user code has had one tuple for ten times its time-out. Nothing ends it but
	// the end of the process; what had ended is committed.
	ErrStuck = errors.New("worker: a task is stuck")
)

// ExitCode is the exit code that Main uses for what Run returned.
func ExitCode(err error) int {
	var mistake *killick.Mistake
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, ErrConfig), errors.As(err, &mistake), errors.Is(err, kerr.InconsistentGroupProtocol),
		errors.Is(err, kerr.InvalidSessionTimeout):
		return 2
	case errors.Is(err, ErrFenced), errors.Is(err, kerr.FencedInstanceID):
		return 4
	case errors.Is(err, ErrStuck):
		return 6
	case errors.Is(err, ErrUnreachable), errors.Is(err, ErrAuth):
		return 5
	case errors.Is(err, ErrDrain):
		return 3
	}
	return 1
}
