//go:build mutants

package rules

import (
	"os"
	"slices"
)

// The rules as variables; see rules.go for what they mean.
var (
	FirstVerdictWins        = holds("FirstVerdictWins")
	OutputsBeforeEnd        = holds("OutputsBeforeEnd")
	FailedTriesLeaveNothing = holds("FailedTriesLeaveNothing")
	DeadTreesEndLast        = holds("DeadTreesEndLast")
	ClosedEpochsEnd         = holds("ClosedEpochsEnd")
	JoinsAnchorAll          = holds("JoinsAnchorAll")
	HeldIsOwn               = holds("HeldIsOwn")
	PanicsAreFailedTries    = holds("PanicsAreFailedTries")
	TriesAreBounded         = holds("TriesAreBounded")
	RetriesExempt           = holds("RetriesExempt")
	WaitsAreNotUserTime     = holds("WaitsAreNotUserTime")
	SinksWaitForDurable     = holds("SinksWaitForDurable")
	DeadLetterBeforeEnd     = holds("DeadLetterBeforeEnd")
	CommitsTheFloor         = holds("CommitsTheFloor")
	GapsAreNoRecords        = holds("GapsAreNoRecords")
	ControlRecordsCount     = holds("ControlRecordsCount")
	TailsAreAsked           = holds("TailsAreAsked")
	MapIsUsed               = holds("MapIsUsed")
	MapBaseIsCompared       = holds("MapBaseIsCompared")
	LatestIsCommittedFirst  = holds("LatestIsCommittedFirst")
	LeaseIsRenewed          = holds("LeaseIsRenewed")
	CodesAreLookedAt        = holds("CodesAreLookedAt")
	DrainBeforeLastCommit   = holds("DrainBeforeLastCommit")
	OrderOverRetries        = holds("OrderOverRetries")
	OrderOverDeadLetters    = holds("OrderOverDeadLetters")
	CommitsBeforeProcessing = holds("CommitsBeforeProcessing")
	OnceIsOneTry            = holds("OnceIsOneTry")
	DoubtIsFenced           = holds("DoubtIsFenced")
	ReleaseBeforeMoving     = holds("ReleaseBeforeMoving")
	ReleaseDrains           = holds("ReleaseDrains")
	NewestClaimCounts       = holds("NewestClaimCounts")
	CommitsUnderLease       = holds("CommitsUnderLease")
	LossCloses              = holds("LossCloses")
	LossInAJoinIsSeen       = holds("LossInAJoinIsSeen")
	OneWhereTasksAreShared  = holds("OneWhereTasksAreShared")
	UnreadStandsBy          = holds("UnreadStandsBy")
	DeathsAreCounted        = holds("DeathsAreCounted")
	TakeOverFirst           = holds("TakeOverFirst")
	SuspectFirst            = holds("SuspectFirst")
	SuspectsRunAlone        = holds("SuspectsRunAlone")
	WaitingIsNoGuilt        = holds("WaitingIsNoGuilt")
)

// Faults.
var (
	LostRangesStop            = holds("LostRangesStop")
	TruncationStops           = holds("TruncationStops")
	BrokenBatchesStop         = holds("BrokenBatchesStop")
	TopicsAreKnownByID        = holds("TopicsAreKnownByID")
	NewPartitionsAreReadWhole = holds("NewPartitionsAreReadWhole")
	MissingTopicsAreRefused   = holds("MissingTopicsAreRefused")
	BrokersAreWaitedFor       = holds("BrokersAreWaitedFor")
	ReleaseIsBounded          = holds("ReleaseIsBounded")
	StuckEndsTheWorker        = holds("StuckEndsTheWorker")
	HeldTimesOut              = holds("HeldTimesOut")
	HighWaterPauses           = holds("HighWaterPauses")
	PausesEnd                 = holds("PausesEnd")
	QueuesAreBounded          = holds("QueuesAreBounded")
	ShortageIsTold            = holds("ShortageIsTold")
	PermanentIsFinal          = holds("PermanentIsFinal")
	SecondSignalEnds          = holds("SecondSignalEnds")
	LostLinesAreCounted       = holds("LostLinesAreCounted")
	DenialEndsTheRun          = holds("DenialEndsTheRun")
	WrongLoginIsFinal         = holds("WrongLoginIsFinal")
	CertificatesAreVerified   = holds("CertificatesAreVerified")
	NullIsNotEmpty            = holds("NullIsNotEmpty")
	LettersAreWhole           = holds("LettersAreWhole")
	TimesAreSane              = holds("TimesAreSane")
)

// names are all that KILLICK_MUTANT may say.
var names = []string{
	"FirstVerdictWins",
	"OutputsBeforeEnd",
	"FailedTriesLeaveNothing",
	"DeadTreesEndLast",
	"ClosedEpochsEnd",
	"JoinsAnchorAll",
	"HeldIsOwn",
	"PanicsAreFailedTries",
	"TriesAreBounded",
	"RetriesExempt",
	"WaitsAreNotUserTime",
	"SinksWaitForDurable",
	"DeadLetterBeforeEnd",
	"CommitsTheFloor",
	"GapsAreNoRecords",
	"ControlRecordsCount",
	"TailsAreAsked",
	"MapIsUsed",
	"MapBaseIsCompared",
	"LatestIsCommittedFirst",
	"LeaseIsRenewed",
	"CodesAreLookedAt",
	"DrainBeforeLastCommit",
	"OrderOverRetries",
	"OrderOverDeadLetters",
	"CommitsBeforeProcessing",
	"OnceIsOneTry",
	"DoubtIsFenced",
	"ReleaseBeforeMoving",
	"ReleaseDrains",
	"NewestClaimCounts",
	"CommitsUnderLease",
	"LossCloses",
	"LossInAJoinIsSeen",
	"OneWhereTasksAreShared",
	"UnreadStandsBy",
	"DeathsAreCounted",
	"TakeOverFirst",
	"SuspectFirst",
	"SuspectsRunAlone",
	"WaitingIsNoGuilt",
	"LostRangesStop",
	"TruncationStops",
	"BrokenBatchesStop",
	"TopicsAreKnownByID",
	"NewPartitionsAreReadWhole",
	"MissingTopicsAreRefused",
	"BrokersAreWaitedFor",
	"ReleaseIsBounded",
	"StuckEndsTheWorker",
	"HeldTimesOut",
	"HighWaterPauses",
	"PausesEnd",
	"QueuesAreBounded",
	"ShortageIsTold",
	"PermanentIsFinal",
	"SecondSignalEnds",
	"LostLinesAreCounted",
	"DenialEndsTheRun",
	"WrongLoginIsFinal",
	"CertificatesAreVerified",
	"NullIsNotEmpty",
	"LettersAreWhole",
	"TimesAreSane",
}

// holds reports whether a rule is in force.
func holds(name string) bool {
	off := os.Getenv(Variable)
	if off != "" && !slices.Contains(names, off) {
		panic("rules: " + Variable + "=" + off + " is no rule; see internal/rules/rules.go")
	}
	return name != off
}
