// Package offsets knows, for one partition, which delivered records have ended and which offset may
// therefore be committed. It also packs what has ended above that offset into commit metadata, so that
// a crash runs little more again than what was really open.
//
//	offset    40   41   42   43   44   45   46   47   48   49   50
//	          end  end  OPEN end   -    -   OPEN end  end
//	                    ^          \_______/               ^
//	                    |          never delivered         |
//	                  Floor        (compaction, markers)  Next
//
//	commit    42, metadata = Map{Base: 42, Next: 49, Open: [42 46]}
//
// The rules:
//
//   - Only delivered offsets count. A hole (compacted away, a transaction marker, aborted data) is done
//     because it was never delivered; nothing here ever reasons with "previous offset + 1".
//   - Floor is the first open offset or, with nothing open, Next. It never falls, and no record below it
//     is open. That offset, and no other, is what may be committed.
//   - A record ends once. Chunk.End says true to exactly one caller per record; a second end, or one after
//     Close, changes nothing and says false.
//   - A ledger lives for one assignment of the partition. A delivery below Next (the log was truncated, or
//     a batch belongs to another assignment) is ErrRewind and changes nothing: close the ledger, open a new one.
//   - A map belongs to the offset that it was committed with (Base). With any other offset it is worth nothing,
//     and like every map that cannot be read it means: nothing is done. That costs replays, never records.
//   - Text made by Encode always fits into the metadata of a commit. A map that is too large forgets its
//     highest ends first; it is never dropped whole.
//
// A batch is delivered as one Chunk with a bit per record. An end is O(1) at any window, Floor is O(1),
// a snapshot costs O(pending); none of them depends on how far Next is ahead of Floor, on the size of holes,
// or on the age of the oldest open record. Ends do not allocate.
//
// The package is pure: no goroutine, no clock, no network. It is not safe for concurrent use: whoever owns
// the partition calls it under the partition's lock, the calls on its chunks included.
package offsets
