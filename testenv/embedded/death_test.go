package embedded

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/killick-io/killick/testenv/bubble"
)

// Clients that die while the group makes them wait for their first join are members when it is complete, as
// in Kafka, and no longer than their session.
func TestDeathInTheFirstJoin(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const dying = 8
		b := StartVirtual(t, Topic("in", 1))
		_, id, _ := member(t, b, "g", "in", kgo.FetchMaxWait(5*time.Second))
		gate := make(chan struct{})
		held := b.Hold(kmsg.JoinGroup, gate, func(r kmsg.Request) bool { return r.(*kmsg.JoinGroupRequest).MemberID == id })
		var mu sync.Mutex
		var conns []net.Conn
		dead := false
		dialer := kgo.Dialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
			mu.Lock()
			defer mu.Unlock()
			if dead {
				return nil, net.ErrClosed
			}
			c, err := b.Dialer()(ctx, network, addr)
			if err == nil {
				conns = append(conns, c)
			}
			return c, err
		})
		for range dying {
			client(t, b, dialer, kgo.ConsumerGroup("g"), kgo.ConsumeTopics("in"), kgo.DisableAutoCommit(),
				kgo.SessionTimeout(10*time.Second), kgo.Balancers(kgo.RangeBalancer()))
		}
		count := func(n int) func(*kfake.GroupInfo) bool {
			return func(g *kfake.GroupInfo) bool { return len(g.Members) == n }
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if _, err := b.Cluster().WaitGroupInfo(ctx, "g", count(dying+1)); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		dead = true
		for _, c := range conns {
			c.Close()
		}
		mu.Unlock()
		time.AfterFunc(time.Second, func() { close(gate); held.Remove() })
		begin := time.Now()
		if _, err := b.Cluster().WaitGroupStable(ctx, "g", 1); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(begin); d < 10*time.Second || d > 15*time.Second {
			t.Errorf("the dead ones were members for %v, with a session of 10 s", d)
		}
	})
}

// A member that waits in a join, or for the leader, does not lose its session meanwhile, as it does not in
// Kafka; one that has died does when the wait is over.
func TestWaitingMembersLive(t *testing.T) {
	for _, waits := range []kmsg.Key{kmsg.JoinGroup, kmsg.SyncGroup} {
		t.Run(waits.Name(), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				b := StartVirtual(t, Topic("in", 1))
				slow := kgo.FetchMaxWait(5 * time.Second)
				_, leader, _ := member(t, b, "g", "in", slow)
				lost := 0
				other := client(t, b, slow, kgo.ConsumerGroup("g"), kgo.ConsumeTopics("in"), kgo.DisableAutoCommit(), kgo.HeartbeatInterval(100*time.Millisecond),
					kgo.SessionTimeout(10*time.Second), kgo.Balancers(kgo.RangeBalancer()), kgo.OnPartitionsLost(func(context.Context, *kgo.Client, map[string][]int32) { lost++ }))
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				if _, err := b.Cluster().WaitGroupStable(ctx, "g", 2); err != nil {
					t.Fatal(err)
				}
				id, _ := other.GroupMetadata()
				// The leader keeps the other one waiting for three sessions, and lives.
				gate := make(chan struct{})
				mine := func(r kmsg.Request) bool {
					switch r := r.(type) {
					case *kmsg.JoinGroupRequest:
						return r.MemberID == leader
					case *kmsg.SyncGroupRequest:
						return r.MemberID == leader
					}
					return false
				}
				held := b.Hold(waits, gate, mine)
				beats := time.NewTicker(time.Second)
				defer beats.Stop()
				other.ForceRebalance()
				if err := held.Wait(ctx, 1); err != nil {
					t.Fatal(err)
				}
				for range 30 {
					<-beats.C
					info, err := b.Cluster().WaitGroupInfo(ctx, "g", func(*kfake.GroupInfo) bool { return true })
					if err != nil {
						t.Fatal(err)
					}
					beat := kmsg.NewPtrHeartbeatRequest() // the leader's own waits behind what is held
					beat.Group, beat.MemberID, beat.Generation = "g", leader, info.Epoch
					if _, err := beat.RequestWith(ctx, other); err != nil {
						t.Fatal(err)
					}
				}
				close(gate)
				held.Remove()
				if _, err := b.Cluster().WaitGroupStable(ctx, "g", 2); err != nil {
					t.Fatal(err)
				}
				if now, _ := other.GroupMetadata(); now != id || lost > 0 {
					t.Errorf("the one that waited was %s, is %s, and has lost its membership %d times", id, now, lost)
				}
			})
		})
	}
}
