// Package dev is a Kafka for a laptop: an embedded broker that lives as long as a command, and the hands to feed and read
// its topics.
//
//	terminal 1: killick dev -- ./hello                     terminal 2: killick dev produce names
//	---------------------------------                      ------------------------------------
//	Start: broker on loopback, topics
//	announce: address and pid in a small file ------------> Find: the newest file whose broker answers
//	Exec: ./hello with the addresses in its environment     Produce, Consume: a client like any other
//	signals -----> ./hello
//	./hello ends: file away, broker closed, its exit code
//
// # Topics
//
// A topic that a client asks for by name is made on the spot (unless [Options].NoCreate), as on a broker out of the box that
// Java clients talk to. kgo, and so killick, asks without permission to create, so the broker does not look at that
// permission. Two kinds of names are left to those who make them with settings of their own: those that end in .dlq
// (dead letters need as many partitions as their source has) and those that begin with "killick." or "__". [Produce] and
// [Consume] look before they name a topic, so a typing error there is an error and no topic.
//
// # How a broker is found
//
// Each running broker has a file of its own in the user's cache folder, written when it listens and removed when it ends:
// nobody changes a file of somebody else, so two brokers cannot lose each other's. A broker that was killed leaves its file
// behind. Hence a file counts only if something answers at its address with the cluster id that the file names, and a
// broker that starts removes those of which that is not true.
//
// # Who has the data
//
// Two brokers on one folder of data would destroy it. A broker takes the folder's lock, where the system has such locks: it
// holds while a broker is stopped or hangs, or could not announce itself, and ends with the process. Elsewhere the
// announcement of a broker that answers is all that keeps the next one away.
//
// # Goroutines
//
// A [Broker] has, beside those of package embedded, one that prints which topics were made; Close waits for it. [Exec] has
// one that waits for the command. [Produce] has one that reads the input: nothing can end a read of a terminal, so after an
// interrupt it may be left until the process ends; it touches nothing but the reader then.
//
// # Failure handling
//
// Errors wrap [ErrUsage] when the call is wrong (nothing has happened then, or up to the line that the error names) and
// [ErrUnreachable] when no broker answers, or none does any more.
package dev
