package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ErrNoRight: the cluster says that we lack a right to a topic. Somebody who may must grant it.
var ErrNoRight = errors.New("kafka: a right is missing")

// MayWrite reports the topics that we are not allowed to write to, as far as the cluster tells:
// brokers from 2.3 on say in a Metadata answer which operations on a topic the asker is allowed
// (KIP-430). Topics of which it does not say, because it is older, has hidden the topic or does not
// know it yet, count as allowed: then the first write shows it.
//
// user is who we are, for the command in the error; "" if that is not known. Each topic has one
// line that wraps ErrNoRight.
func (a *Admin) MayWrite(ctx context.Context, user string, topics ...string) error {
	got, err := a.ask(ctx, true, topics...)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range topics {
		if t, ok := got[name]; ok && kerr.ErrorForCode(t.ErrorCode) == nil && forbidden(t.AuthorizedOperations, kmsg.ACLOperationWrite) {
			errs = append(errs, fmt.Errorf("%w: operation WRITE on topic %q; grant it with: %s", ErrNoRight, name, grant(a.seeds, user, name)))
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

// grant is the shell command that allows user to write to a topic.
func grant(seeds []string, user, topic string) string {
	if user == "" {
		user = "NAME"
	}
	return fmt.Sprintf("kafka-acls.sh --bootstrap-server %s --add --allow-principal %s --operation Write --topic %s",
		shellQuote(strings.Join(seeds, ",")), shellQuote("User:"+user), shellQuote(topic))
}
