// Package bench measures killick on Apache Kafka: what its at-least-once path costs ([ALO]; the arms and the arithmetic are
// those of internal/bench/alo), and what a paused partition does to others ([Pause]).
//
//	ALO:    this process                a slice, GOMAXPROCS=1         broker: a JVM, or a Kafka that was there
//	        topics, filled ------------------------------------------> 8 partitions
//	        a job, on stdin ----------> drains it: killick, or <------
//	        its answer, on stdout <---- the bare loop; commits ------>
//
//	Pause:  killick in this process reads a busy partition and seven others, into which a clock writes
//
// # Where Kafka is
//
// Without an address, kafkaenv starts a broker as for measuring and ends it afterwards, also after an interrupt; should this
// process be killed, the broker ends with it. At an address, topics and groups have names of their own (a random prefix) and
// are deleted at the end.
//
// # Failure handling
//
// Errors wrap [ErrUsage] when the call is wrong: nothing was started then. They wrap [ErrUnreachable] when no Kafka answers,
// and alo.ErrInvalid when a slice has lost, repeated or miscounted something: such a run has no numbers.
package bench
