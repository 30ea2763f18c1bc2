// Package engine runs a topology inside one process: it takes roots from feeds, executes
// bolts, and tells each feed how its roots have ended.
//
//	Feed --run of records--> dispatcher --batch--> task --batch--> task ...
//	  ^                          | fused: the first task runs on this goroutine
//	  '------ EndRun / End ------'------- last edge of a tree -------'
//
// # Goroutines
//
// Each spout has a dispatcher, each task a loop; one goroutine fires delayed retries
// (delays) and one keeps time (watch). Engine.Run owns them all and waits for them. A task's
// state belongs to whoever holds its ownership token: its own loop, or the goroutine of
// the task upstream, which runs a whole batch in line when the task is idle, quick and
// alone in its component. Tasks hand over batches of up to 256 items through bounded
// queues; a full queue blocks the sender, and since the graph has no cycle the last task
// always moves on. Retries wait outside these queues, so a full one never blocks them.
//
// # Trees
//
// Inside a synchronous call the return is the ack, so a root that no tuple outlives has
// no tree: its run is ended as a whole. A tree is made when a tuple crosses to another
// goroutine, is held, or fails. See frame.
package engine
