// Package testenv tests topologies and bolts.
//
// [Run] executes a whole topology in this process, without a broker and in virtual time (a
// testing/synctest bubble), until every tree has ended: retries, back-off and time-outs take no
// real time. Nothing is committed there, and nothing is lost: it is the engine that workers run,
// between a feed of messages and a list of what was written. [Execute] runs one bolt on one
// message, without an engine. Sub-package embedded has an embedded Kafka broker for tests that
// need one.
//
//	func TestGreet(t *testing.T) {
//		r := testenv.Run(t, topology(), testenv.Feed("names", killick.Message{Bytes: []byte("Ada")}))
//		if got := r.Emitted("greet"); len(got) != 1 {
//			t.Errorf("greet emitted %d messages", len(got))
//		}
//	}
package testenv
