package main

// mutant is a rule, and the test that must notice when it is broken.
type mutant struct {
	rule      string // a name in internal/rules/rules.go
	guarantee string // that rests on it, or policy (P), see README.md, or row of docs/faults.md
	pkg       string // folder of the test
	test      string
	short     bool // runs in make test: what fails at once when broken
}

// table has every rule once.
var table = []mutant{
	{"FirstVerdictWins", "G3", ".", "TestG3OneOutcome", true},
	{"OutputsBeforeEnd", "G1", ".", "TestG1NoEarlyCommit", true},
	{"DeadTreesEndLast", "G1", ".", "TestG1NoEarlyCommit", false},
	{"ClosedEpochsEnd", "G3", "./ack", "TestClosedEpoch", false},
	{"JoinsAnchorAll", "G1", ".", "TestG1JoinsHoldAllRoots", false},
	{"HeldIsOwn", "G3", ".", "TestG3HeldIsOwn", false},
	{"FailedTriesLeaveNothing", "G5", ".", "TestG5FailedTriesLeaveNothing", true},

	{"PanicsAreFailedTries", "G4", ".", "TestG4Poison", true},
	{"TriesAreBounded", "G4", ".", "TestG4Poison", false},
	{"RetriesExempt", "G4", ".", "TestG4RetryInFullWindow", false},
	{"WaitsAreNotUserTime", "G4", ".", "TestG4QueuesAreNotUserTime", false},

	{"SinksWaitForDurable", "G1", ".", "TestG1SinksWaitForDurable", true},
	{"DeadLetterBeforeEnd", "G1", ".", "TestG1DeadLetterFirst", true},

	{"CommitsTheFloor", "G1", ".", "TestG1NoEarlyCommit", true},
	{"GapsAreNoRecords", "G4", ".", "TestG4CompactedLog", false},
	{"ControlRecordsCount", "G4", ".", "TestG4TransactionMarkers", false},
	{"TailsAreAsked", "G4", ".", "TestG4CompactedTail", false},
	{"MapIsUsed", "G5", ".", "TestG5HardStop", true},
	{"MapBaseIsCompared", "G5", ".", "TestG5OffsetsSetBack", false},
	{"LatestIsCommittedFirst", "G1", ".", "TestG1LatestIsCommittedFirst", true},
	{"LeaseIsRenewed", "G4", ".", "TestG4LeaseIsRenewed", false},
	{"CodesAreLookedAt", "G4", ".", "TestG4CommitsGoOn", false},
	{"DrainBeforeLastCommit", "G5", ".", "TestG5CleanStop", false},

	{"OrderOverRetries", "P1", "./worker", "TestOrderOverRetries", false},
	{"OrderOverDeadLetters", "P1", "./internal/partition", "TestOrderOverDeadLetters", true},

	{"CommitsBeforeProcessing", "P2", "./worker", "TestAtMostOnceOverKills", false},
	{"OnceIsOneTry", "P2", "./internal/engine", "TestOnceIsOneTry", true},
	{"DoubtIsFenced", "P2", "./worker", "TestAtMostOnceDoubt", false},

	{"ReleaseBeforeMoving", "G7", ".", "TestG7MovesAreReleased", true},
	{"ReleaseDrains", "G7", ".", "TestG7MovesAreReleased", false},
	{"NewestClaimCounts", "G7", "./internal/balance", "TestPlan", false},
	{"CommitsUnderLease", "G7", ".", "TestG7NoCommitAfterLoss", false},
	{"LossCloses", "G7", ".", "TestG7NoCommitAfterLoss", false},
	{"LossInAJoinIsSeen", "G7", "./worker", "TestSessionEndsInAJoin", false},
	{"OneWhereTasksAreShared", "G9", ".", "TestG9KeysMeetOneTask", false},
	{"UnreadStandsBy", "G9", "./internal/group", "TestUnreadableAssignment", false},

	{"DeathsAreCounted", "G4", ".", "TestG4RecordThatKills", false},
	{"TakeOverFirst", "G4", ".", "TestG4RecordThatKills", false},
	{"SuspectFirst", "G4", ".", "TestG4RecordThatKills", false},
	{"SuspectsRunAlone", "G4", ".", "TestG4RecordThatKills", false},
	{"WaitingIsNoGuilt", "G4", "./offsets", "TestTakeOver", false},

	{"LostRangesStop", "row 8", "./worker", "TestCommittedOffsetOutOfRangeStopsThePartition", false},
	{"TruncationStops", "row 9", "./internal/group", "TestTruncationStops", false},
	{"BrokenBatchesStop", "row 68", "./worker", "TestDamagedBatch", false},
	{"TopicsAreKnownByID", "row 12", "./worker", "TestTopicDeletedAndMadeAnew", false},
	{"NewPartitionsAreReadWhole", "row 13", "./worker", "TestPartitionsBornLater", false},
	{"MissingTopicsAreRefused", "row 14", "./worker", "TestRefusedAtStart", false},
	{"BrokersAreWaitedFor", "row 15", "./internal/kafka", "TestMemberOutlivesItsBroker", false},
	{"ReleaseIsBounded", "row 18", "./worker", "TestReleaseLimit", false},
	{"StuckEndsTheWorker", "row 22", "./worker", "TestStuckTask", false},
	{"HeldTimesOut", "row 25", "./internal/engine", "TestForgottenVerdicts", false},
	{"HighWaterPauses", "row 29", "./worker", "TestHighWaterPausesAndResumes", false},
	{"PausesEnd", "row 63", "./worker", "TestSmallestLimits", false},
	{"QueuesAreBounded", "row 30", "./internal/engine", "TestFanOutOfAMillion", false},
	{"ShortageIsTold", "row 55", "./worker", "TestShortage", false},
	{"LostLinesAreCounted", "row 56", "./worker", "TestLostLines", false},
	{"SecondSignalEnds", "row 58", "./worker", "TestExitCodes", false},
	{"DenialEndsTheRun", "row 69", "./worker", "TestRightToReadIsTaken", false},
	{"WrongLoginIsFinal", "row 70", "./internal/kafka", "TestReachAuthCodes", false},
	{"CertificatesAreVerified", "row 71", "./worker", "TestReachMismatches", false},
	{"PermanentIsFinal", "row 72", "./worker", "TestSchemaRegistry", false},
	{"NullIsNotEmpty", "row 65", "./worker", "TestNullIsNotEmpty", false},
	{"LettersAreWhole", "row 64", "./worker", "TestUndecodableRecordsKeepTheirBytes", false},
	{"TimesAreSane", "row 67", "./worker", "TestOddTimestamps", false},
}
