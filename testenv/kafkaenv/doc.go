// Package kafkaenv runs Apache Kafka for tests: real brokers as processes of this machine, on
// free ports of 127.0.0.1, that a test can pause, stop, kill and start again.
//
//	func TestSurvivesTheBroker(t *testing.T) {
//		k := kafkaenv.Start(t, kafkaenv.Topic("in", 4))
//		// ... connect to k.Addrs(), or with k.ClientOpts()
//		if err := k.Brokers()[0].Kill(); err != nil {
//			t.Fatal(err)
//		}
//		// ...
//		if err := k.Brokers()[0].Start(t.Context()); err != nil {
//			t.Fatal(err)
//		}
//	}
//
// It needs Java 17 or later, and on first use of a release Maven, which fetches the broker's jars
// (about 45 MB) into the user's cache (os.UserCacheDir) and checks them against the hashes in
// this package; from then on no network is needed. Where Java or Maven is missing, [Start] skips
// the test and says what is missing; with CI=true in the environment it fails it. A broker starts
// in one to two seconds and takes about 140 MB. It runs on Linux, and as far as known on other
// Unix systems.
//
// A test that does not break its broker shares one with others: see [Shared]. Package
// testenv/embedded has a broker inside the test's process, which starts in a millisecond and works
// in virtual time, but has no disk, no replication and no fencing of its own.
//
// # Settings
//
// The brokers are Kafka as released, with a few settings for tests: small buffers, a group's first
// member does not wait for others (group.initial.rebalance.delay.ms=0), session timeouts from
// 100 ms on, a broker counts as dead after three seconds without a heartbeat, four partitions for each
// internal topic, and topics are not made by asking for them. [Property] changes any of them.
//
// # Clusters
//
// One broker is its own controller. Several brokers ([Brokers]) have one controller process beside
// them that no test needs to touch, so that killing a broker kills no controller.
package kafkaenv
