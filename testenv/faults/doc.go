// Package faults disturbs programs that use Kafka, and watches them, for tests: killick's own and those
// of its users. It works with any broker and any client.
//
// # Proxy
//
// A [Proxy] stands between clients and the brokers of a cluster, on loopback. Clients get its addresses
// as their seeds, and stay behind it: wherever an answer names a broker (Metadata, FindCoordinator,
// DescribeCluster, and the new leaders in answers to Produce, Fetch, ShareFetch and ShareAcknowledge) it
// puts an address of its own, with a listener for each broker, made when it is first named.
//
//	p := faults.StartProxy(t, "127.0.0.1:9092")
//	f := faults.Inject(t, p, faults.Rule{
//		Do:     faults.HoldAnswer,
//		Keys:   []kmsg.Key{kmsg.OffsetCommit},
//		Topics: []string{"orders"},
//	})
//	start(p.Addrs()) // of what is tested
//	if err := f.Wait(ctx, 1); err != nil { // the broker has the commit, the client does not know
//		t.Fatal(err)
//	}
//
// A [Rule] says which requests it is for (kind, topic, client, broker, number of the connection, or a
// function of the request; the n-th that fits, several, or all from then on) and what is done: drop,
// hold, delay or cut, before the broker gets it or before the client gets the answer, or give it to the
// broker twice. The [Fault] that [Inject] returns counts, waits, lets go and ends. Whole brokers and the
// whole cluster are cut off by [Proxy.Cut], [Proxy.Refuse] and [Proxy.BlackHole], and the same of a
// [Link], until Heal.
//
// What the proxy does not do:
//
//   - It does not read TLS. A connection that begins with a TLS handshake is passed as bytes: no rule
//     fits it, and addresses in its answers stay those of the brokers, so that a client goes past the
//     proxy after its seeds. Cut, Refuse and BlackHole work. Test faults of requests on a plaintext
//     listener; SASL on it passes, except the handshake of version 0 (before Kafka 1.0), which is
//     refused.
//   - It refuses connections while the broker does, but may have accepted one when it finds that out
//     ([ErrUnreachable]); that one is reset. A broker's machine that does not answer at all is a connection
//     that is accepted and then hangs. (On Windows a link does not see that its broker refuses.)
//   - It lets clients and brokers agree on the versions of requests that its own kmsg can read, and on no
//     newer ones. Kinds of requests that kmsg does not know pass as bytes.
//   - It does not change the order of a connection, as TCP does not: what is behind a request that is
//     held waits, and what is behind one that was dropped is dropped. Clients have several connections
//     to a broker. (franz-go: one each for produce, fetch, join and sync, requests with a timeout, and
//     the rest, so commits and heartbeats share one.)
//
// What comes over the wire is not trusted: a frame without a good length, or one that ends early, or
// whose content cannot be read where it has to be, ends its connection, and [Proxy.Errors] has the
// reason. Memory is taken for what came, never for what a length announces.
//
// # Event files
//
// A [Log] is an append-only file in which a process notes its side effects, one line each, and its commits
// of offsets: [Log.Dialer] sees these on the wire, before they leave and before the client has the answer.
// The files survive SIGKILL. A [Proxy] can write one, too ([ProxyConfig].Events). Package testenv/verify
// judges a run by them, and by what is in Kafka.
//
// # Processes
//
// [Processes] runs copies of a program, as a rule of the test binary itself, which asks for its [Role]
// first of all. A [Process] is killed (SIGKILL), frozen and thawed (SIGSTOP, SIGCONT), asked to end
// (SIGTERM) and started again: by hand, or by a [Plan] that is drawn from a [Seed], which the test logs.
// Each life has an event file and a file of its output; where a test has failed they are kept, and it says
// where. Processes are ended by their own id only. On Linux none outlives its test, however that ends;
// on other systems a test that is killed leaves them behind. (Unix only; Proxy and Log work everywhere.)
//
//	func TestMain(m *testing.M) {
//		if faults.Role() == "worker" {
//			os.Exit(workerMain())
//		}
//		os.Exit(m.Run())
//	}
//
//	func workerMain() int {
//		log, err := faults.OpenLog()
//		... // the topology's bolt calls log.Effect before it returns
//		code := worker.Command(top, os.Args[1:], os.Environ(), os.Stdout, os.Stderr, func(c *worker.Config) {
//			c.Kafka = append(c.Kafka, kgo.Dialer(log.Dialer(nil)))
//		})
//		... // log.End(code)
//		return code
//	}
//
//	func TestKills(t *testing.T) {
//		ps := faults.StartProcesses(t, faults.ProcessesConfig{Args: args}, "w1", "w2", "w3")
//		plan, err := faults.NewPlan(faults.Seed(t), faults.PlanConfig{Procs: []string{"w1", "w2", "w3"}, For: 10 * time.Second})
//		...
//		if err := ps.Run(ctx, plan); err != nil {
//			t.Fatal(err)
//		}
//		... // until all is committed; then verify.EventDir(ps.Dir())
//	}
//
// # Crash points
//
// In builds with the tag killick_crash, killick has named points at which [Process.Crash] has the next
// life of a process end, stop or wait: between a record that is durable and the tree that hears of it,
// between a commit and its answer, inside a release ([CrashPoints]). They are for killick's own tests and
// for yours (go test -tags killick_crash); programs that are shipped are built without the tag, and have
// none.
package faults
