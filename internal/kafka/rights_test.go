package kafka

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/killick-io/killick/testenv/embedded"
)

// allow is an ACL of a topic.
func allow(topic string, op kmsg.ACLOperation) kfake.ACL {
	return kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: topic, Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: op, Allow: true}
}

// The broker says what may be written to, and the error how to grant it; who does not say is not doubted.
func TestMayWrite(t *testing.T) {
	t.Parallel()
	b := embedded.Start(t, embedded.SASL("PLAIN", "admin", "secret"), embedded.Topic("out", 1), embedded.Topic("read only", 1),
		embedded.Topic("written", 1), embedded.Topic("hidden", 1),
		embedded.Kfake(kfake.EnableACLs(), kfake.User("PLAIN", "u", "pw",
			allow("out", kmsg.ACLOperationWrite), allow("read only", kmsg.ACLOperationRead), allow("written", kmsg.ACLOperationAll))))
	as := func(extra ...kgo.Opt) *Admin {
		c := Cluster{Seeds: b.Addrs(), Topology: "orders", SASL: plain.Auth{User: "u", Pass: "pw"}.AsMechanism(), Extra: extra}
		cl, err := NewAdminClient(c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(cl.Close)
		return NewAdmin(cl, "u")
	}
	a := as()
	ctx := limited(t)
	if err := a.MayWrite(ctx, "out", "written", "hidden", "not there"); err != nil {
		t.Errorf("what may be written to, or is not known: %v", err)
	}
	err := a.MayWrite(ctx, "out", "read only")
	want := `kafka: a right is missing: operation WRITE on topic "read only"; grant it with: kafka-acls.sh --bootstrap-server ` + b.Addrs()[0] +
		` --add --allow-principal User:u --operation Write --topic 'read only'`
	if !errors.Is(err, ErrNoRight) || err.Error() != want {
		t.Errorf("MayWrite = %v\nwant %s", err, want)
	}
	if err := NewAdmin(a.cl, "").MayWrite(ctx, "read only"); err == nil || !strings.Contains(err.Error(), "User:NAME") {
		t.Errorf("without a user's name: %v", err)
	}
	// A broker before 2.3 has no field for it.
	old := kversion.Stable()
	old.SetMaxKeyVersion(int16(kmsg.Metadata), 7)
	if err := as(kgo.MaxVersions(old)).MayWrite(ctx, "read only"); err != nil {
		t.Errorf("an old broker: %v", err)
	}
}

func TestDenied(t *testing.T) {
	t.Parallel()
	a := &Admin{seeds: []string{"b:9092"}, user: "u"}
	err := fmt.Errorf("offsets: %w", kerr.GroupAuthorizationFailed)
	got := a.Denied(err, kmsg.ACLOperationRead, kmsg.ACLResourceTypeGroup, "g")
	if want := err.Error() + `: kafka: a right is missing: operation READ on group "g"; grant it with: kafka-acls.sh --bootstrap-server b:9092 --add --allow-principal User:u --operation Read --group g`; got.Error() != want ||
		!errors.Is(got, ErrNoRight) || !errors.Is(got, kerr.GroupAuthorizationFailed) {
		t.Errorf("%v\nwant %s", got, want)
	}
	if other := errors.New("other"); a.Denied(other, kmsg.ACLOperationRead, kmsg.ACLResourceTypeGroup, "g") != other || a.Denied(nil, 0, 0, "") != nil {
		t.Error("an error of another kind is changed")
	}
}

func TestForbidden(t *testing.T) {
	t.Parallel()
	const describe, write, read = 1 << 8, 1 << 4, 1 << 3 // codes of Kafka's AclOperation
	for set, want := range map[int32]bool{noOperations: false, 0: false, read: false, describe: true, describe | read: true,
		describe | write: false, describe | write | read: false, -1: false} {
		if got := forbidden(set, kmsg.ACLOperationWrite); got != want {
			t.Errorf("forbidden(%b) = %v", set, got)
		}
	}
}
