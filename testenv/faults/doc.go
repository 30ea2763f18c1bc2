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
//   - It is not there when the broker is not: its port accepts, and closes when the broker cannot be
//     reached ([ErrUnreachable]). Use Refuse where a client must be refused.
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
package faults
