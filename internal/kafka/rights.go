package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ErrNoRight: the cluster says that we lack a right. Somebody who may must grant it.
var ErrNoRight = errors.New("kafka: a right is missing")

// MayWrite reports the topics that we are not allowed to write to, as far as the cluster tells:
// brokers from 2.3 on say in a Metadata answer which operations on a topic the asker is allowed
// (KIP-430). Topics of which it does not say, because it is older, has hidden the topic or does not
// know it yet, count as allowed: then the first write shows it.
//
// Each topic has one line that wraps ErrNoRight.
func (a *Admin) MayWrite(ctx context.Context, topics ...string) error {
	got, err := a.ask(ctx, true, topics...)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range topics {
		if t, ok := got[name]; ok && kerr.ErrorForCode(t.ErrorCode) == nil && forbidden(t.AuthorizedOperations, kmsg.ACLOperationWrite) {
			errs = append(errs, a.lacks(kmsg.ACLOperationWrite, kmsg.ACLResourceTypeTopic, name))
		}
	}
	return errors.Join(errs...)
}

// noOperations is how a broker says that it does not tell.
const noOperations = -1 << 31

// forbidden reports whether a set of allowed operations, one bit each, lacks op. Who is told
// anything about a topic may describe it, which the other rights imply, too: a set without that is
// none.
func forbidden(set int32, op kmsg.ACLOperation) bool {
	return set != noOperations && set&(1<<kmsg.ACLOperationDescribe) != 0 && set&(1<<op) == 0
}

// Denied adds to an error that says that we are not authorized what it is that we lack: op on the
// topic or group. Other errors it returns as they are.
func (a *Admin) Denied(err error, op kmsg.ACLOperation, kind kmsg.ACLResourceType, name string) error {
	if !errors.Is(err, kerr.TopicAuthorizationFailed) && !errors.Is(err, kerr.GroupAuthorizationFailed) && !errors.Is(err, kerr.ClusterAuthorizationFailed) {
		return err
	}
	return fmt.Errorf("%w: %w", err, a.lacks(op, kind, name))
}

func (a *Admin) lacks(op kmsg.ACLOperation, kind kmsg.ACLResourceType, name string) error {
	user := a.user
	if user == "" {
		user = "NAME"
	}
	what := strings.ToLower(kind.String())
	return fmt.Errorf("%w: operation %v on %s %q; grant it with: kafka-acls.sh --bootstrap-server %s --add --allow-principal %s --operation %s --%s %s",
		ErrNoRight, op, what, name, shellQuote(strings.Join(a.seeds, ",")), shellQuote("User:"+user), title(op.String()), what, shellQuote(name))
}

// title is an operation as kafka-acls.sh wants it.
func title(op string) string { return op[:1] + strings.ToLower(op[1:]) }
