// Package outbox writes what leaves the process: the records of sinks (Direct) and dead letters
// (DeadLetters). Each is an edge, or a root, that ends when its record is durable. They use
// producer clients of their own: a client blocks as a whole when its buffer is full.
package outbox
