//go:build !mutants

package rules

// Trees.
const (
	// FirstVerdictWins: of the verdicts of one try the first counts, and only who gave it touches
	// the tree.
	FirstVerdictWins = true
	// OutputsBeforeEnd: the edges of what a tuple emits are open before its own edge ends, else the
	// tree would look finished in between.
	OutputsBeforeEnd = true
	// FailedTriesLeaveNothing: what a failed try has emitted is dropped.
	FailedTriesLeaveNothing = true
	// DeadTreesEndLast: a tree that is dead, or to be replayed, ends when its last edge has ended,
	// so that two attempts of a root never overlap.
	DeadTreesEndLast = true
	// ClosedEpochsEnd: what ends after its partition was lost changes nothing.
	ClosedEpochsEnd = true
	// JoinsAnchorAll: an output that joins several tuples is an open edge on the trees of all of
	// them from Emit on.
	JoinsAnchorAll = true
	// HeldIsOwn: a held tuple has a copy of its input that nothing reuses.
	HeldIsOwn = true
)

// Tries.
const (
	// PanicsAreFailedTries: a panic of user code fails the try that it came in, and nothing else.
	PanicsAreFailedTries = true
	// TriesAreBounded: a tuple that fails again and again is given up.
	TriesAreBounded = true
	// RetriesExempt: a retry does not need a place in the window of pending roots; its root has one.
	RetriesExempt = true
	// WaitsAreNotUserTime: a tuple's clock stands still while its emits wait for room downstream.
	WaitsAreNotUserTime = true
)

// What leaves the process.
const (
	// SinksWaitForDurable: the input of a sink ends when what was written is durable.
	SinksWaitForDurable = true
	// DeadLetterBeforeEnd: a dead root ends when its dead letter is durable.
	DeadLetterBeforeEnd = true
)

// Offsets.
const (
	// CommitsTheFloor: the position that is committed is the first open offset, not what lies
	// behind the highest one that is done.
	CommitsTheFloor = true
	// GapsAreNoRecords: an offset that was never delivered is not waited for.
	GapsAreNoRecords = true
	// ControlRecordsCount: the position moves behind transaction markers, too.
	ControlRecordsCount = true
	// TailsAreAsked: when the end of a log was compacted away, the position moves there all the
	// same.
	TailsAreAsked = true
	// MapIsUsed: ends above the committed offset are remembered in the commit, and not run again.
	MapIsUsed = true
	// MapBaseIsCompared: the memory of a commit counts for the offset that it was made for only.
	MapBaseIsCompared = true
	// LatestIsCommittedFirst: where a start position was found out just now, it is committed
	// before the first record is processed.
	LatestIsCommittedFirst = true
	// LeaseIsRenewed: an assignment that brings nothing new renews the lease of what was kept.
	LeaseIsRenewed = true
	// CodesAreLookedAt: a position counts as committed only if the broker says so for its partition.
	CodesAreLookedAt = true
	// DrainBeforeLastCommit: a stop lets open trees end before it commits for the last time.
	DrainBeforeLastCommit = true
)

// Order.
const (
	// OrderOverRetries: the next record of a key, or partition, starts when the tree of the one before
	// it has ended, not when its first try has.
	OrderOverRetries = true
	// OrderOverDeadLetters: where the one before it is dead, when its dead letter is durable.
	OrderOverDeadLetters = true
)

// At most once.
const (
	// CommitsBeforeProcessing: a record starts when a commit behind it is confirmed.
	CommitsBeforeProcessing = true
	// OnceIsOneTry: a try that fails is the last one.
	OnceIsOneTry = true
	// DoubtIsFenced: after a commit whose outcome is not known nothing is claimed under its generation,
	// lest it arrive later and set the offset back.
	DoubtIsFenced = true
)

// Membership.
const (
	// ReleaseBeforeMoving: a partition is not taken from a member that claims it; it is asked for.
	ReleaseBeforeMoving = true
	// ReleaseDrains: a partition that is asked for is closed when its trees have ended and are
	// committed, not before.
	ReleaseDrains = true
	// NewestClaimCounts: of several claims on a partition the one of the highest generation does.
	NewestClaimCounts = true
	// CommitsUnderLease: a commit carries the member and generation under which its positions were
	// taken, not those of the moment at which it is sent.
	CommitsUnderLease = true
	// LossCloses: what was lost is closed before anything else, and nothing of it is committed.
	LossCloses = true
	// LossInAJoinIsSeen: a membership whose end the client learns of in a join, and keeps to itself, is
	// lost like any other.
	LossInAJoinIsSeen = true
	// OneWhereTasksAreShared: a topology whose tasks are spread by key works in one replica at a
	// time; the others would each have those tasks again.
	OneWhereTasksAreShared = true
	// UnreadStandsBy: of such a topology a replica that cannot read what the group's leader says does
	// not work: it may be the second one.
	UnreadStandsBy = true
)

// Death.
const (
	// DeathsAreCounted: an owner that finds the mark of one that died counts it, and goes careful when
	// that happens again and again.
	DeathsAreCounted = true
	// TakeOverFirst: the mark that a partition is taken over is committed before its first record runs;
	// a death before it would not be seen.
	TakeOverFirst = true
	// SuspectFirst: in careful mode a record is committed as the suspect before it runs.
	SuspectFirst = true
	// SuspectsRunAlone: in careful mode the whole process runs one root at a time, or it would accuse
	// one that has done nothing.
	SuspectsRunAlone = true
	// WaitingIsNoGuilt: an accused record that waits to be run has no part in a death.
	WaitingIsNoGuilt = true
)

// Faults: rows of docs/faults.md that no rule above stands for.
const (
	// LostRangesStop: records that left the log before they were read stop their partition, unless the
	// topology says otherwise.
	LostRangesStop = true
	// TruncationStops: so does a log that ends below what was read from it.
	TruncationStops = true
	// BrokenBatchesStop: so does a batch that cannot be read, however often it is fetched.
	BrokenBatchesStop = true
	// TopicsAreKnownByID: a topic that was deleted and made anew is another one, whatever its name.
	TopicsAreKnownByID = true
	// NewPartitionsAreReadWhole: a partition that was added to a topic is read from its beginning, also where the
	// group has started at the end.
	NewPartitionsAreReadWhole = true
	// MissingTopicsAreRefused: a topology does not start without a topic that it reads.
	MissingTopicsAreRefused = true
	// BrokersAreWaitedFor: a broker that is away does not cost the membership.
	BrokersAreWaitedFor = true
	// ReleaseIsBounded: a release whose trees do not end is over at the drain limit.
	ReleaseIsBounded = true
	// StuckEndsTheWorker: user code that does not come back ends the process at last.
	StuckEndsTheWorker = true
	// HeldTimesOut: a held tuple without a verdict fails when its time is up.
	HeldTimesOut = true
	// HighWaterPauses: the fetching of a partition pauses when enough of it waits.
	HighWaterPauses = true
	// PausesEnd: fetching goes on when what has waited has started.
	PausesEnd = true
	// QueuesAreBounded: what is emitted waits for room downstream.
	QueuesAreBounded = true
	// ShortageIsTold: what has run out, such as descriptors, is named, and not only that time was up.
	ShortageIsTold = true
	// PermanentIsFinal: a failure that user code calls permanent is not tried again.
	PermanentIsFinal = true
	// SecondSignalEnds: a stop that takes long can be cut short by a second signal.
	SecondSignalEnds = true
	// LostLinesAreCounted: a log line that cannot be written is counted, and told when the log takes lines again.
	LostLinesAreCounted = true
	// DenialEndsTheRun: who may not read a topic any more ends, and says what is lacking.
	DenialEndsTheRun = true
	// WrongLoginIsFinal: credentials that a broker has refused are not tried again.
	WrongLoginIsFinal = true
	// CertificatesAreVerified: a broker whose certificate is not trusted is not talked to.
	CertificatesAreVerified = true
	// NullIsNotEmpty: a null value stays null on its way out.
	NullIsNotEmpty = true
	// LettersAreWhole: a dead letter has its record's bytes and headers, all of them and as they were.
	LettersAreWhole = true
	// TimesAreSane: a record whose time no broker would take, or no client can write, gets that of its writing.
	TimesAreSane = true
)
