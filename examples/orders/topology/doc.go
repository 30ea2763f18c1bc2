// Package topology is the order story as a killick topology: orders come in, are checked for fraud, paid, and their
// customers are told.
//
//	orders --> fraud --------------> pay --------> notify --> notifications (sink)
//	             \                                  ^
//	              +-- stream "rejected" ------------+
//
// What it shows: a source with a codec, whose undecodable records become dead letters; a bolt with two output streams;
// a bolt with state, a connection and a retry policy of its own; a bolt with two inputs; a sink that acks when its
// record is durable. It uses the public packages killick, bolt and spout only. The rules of the story are in README.md
// of the example; package check has them a second time.
//
// # Failure handling
//
// A payment call that fails is a failed try: it comes again after a back-off, while other orders go on. After five
// tries the order's record goes to the dead-letter topic. A declined payment is an answer and not a failure. Delivery
// is at-least-once: after a crash an order that was under way runs again, so a real gateway would be given
// [Charge.ID], which is the same on each replay, and charge once.
package topology
