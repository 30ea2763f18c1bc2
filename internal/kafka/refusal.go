package kafka

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Kind is what to do about a commit that was not stored.
type Kind uint8

const (
	// OK: stored.
	OK Kind = iota
	// RetryLater: commit again at the next tick, built anew from the state of
	// then. The lease may still be good.
	RetryLater
	// WaitRenewal: the generation has moved on. Do nothing until an Assigned
	// callback has renewed the lease, then build anew: only then is it known
	// which partitions are still ours.
	WaitRenewal
	// LostMembership: we are no member any more. Close all ledgers of the
	// group without a commit; another member may own the partitions already.
	LostMembership
	// Fatal: this partition cannot be committed as it is, and trying again
	// changes nothing. Others are not affected. Show it, alarm.
	Fatal
)

// String is the name of the constant in words.
func (k Kind) String() string {
	names := [...]string{"ok", "retry later", "wait for renewal", "lost membership", "fatal"}
	if int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Hopeless reports whether a position that was refused with err will not be stored, however often a member
// that is about to give its partition away sends it: what is Fatal, and what comes from a membership that
// is over. A generation that has moved on is not among that: the next one may still have the partition. Nor
// is UNKNOWN_SERVER_ERROR, by which a coordinator says that its own log has refused the record.
func Hopeless(err error) bool {
	switch Refusal(err) {
	case Fatal:
		return !errors.Is(err, kerr.UnknownServerError)
	case LostMembership:
		return true
	}
	return false
}

// Refusal classifies the error of a Result, or of Commit itself. It is the one
// place where codes of a commit get a meaning.
func Refusal(err error) Kind {
	if err == nil {
		return OK
	}
	is := func(targets ...error) bool {
		for _, t := range targets {
			if errors.Is(err, t) {
				return true
			}
		}
		return false
	}
	switch {
	// Not sent: there was no generation yet, so this is the wait for one.
	case is(ErrNoLease):
		return WaitRenewal

	// A broken invariant of ours, the metadata limit included. Before the
	// transport's arm, since nothing about it is transient.
	case is(ErrBadPosition):
		return Fatal

	// The group waits for the leader's plan. Our lease is of the generation
	// that ends, or of the one that begins: the Assigned callback tells.
	// Until then a commit may still get through, so no need to stop.
	case is(kerr.RebalanceInProgress):
		return RetryLater

	// The coordinator moves or loads. kgo has repeated the request for as
	// long as it does; the lease is not in doubt.
	case is(kerr.CoordinatorNotAvailable, kerr.NotCoordinator, kerr.CoordinatorLoadInProgress):
		return RetryLater

	// The coordinator could not replicate the offset in time. It may be
	// stored all the same; the same or a higher one again does no harm.
	case is(kerr.RequestTimedOut, kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend, ErrNoAnswer):
		return RetryLater

	// A new generation stands. The old lease can never commit again, and
	// the new one must come from the callback that says what is ours in it.
	// STALE_MEMBER_EPOCH is the same for groups of KIP-848.
	case is(kerr.IllegalGeneration, kerr.StaleMemberEpoch):
		return WaitRenewal

	// The session ended, or somebody removed us, or the group is gone.
	case is(kerr.UnknownMemberID, kerr.GroupIDNotFound, kerr.FencedMemberEpoch):
		return LostMembership

	// A second process holds our instance id. It never ends by itself: the
	// older client must be closed.
	case is(kerr.FencedInstanceID):
		return LostMembership

	// The broker's limit is lower than Kafka's default, or our count wrong.
	case is(kerr.OffsetMetadataTooLarge, kerr.InvalidCommitOffsetSize):
		return Fatal

	// Permissions do not come back within a tick; the topic or group is
	// named in the error. Records go on, their offsets stay behind.
	case is(kerr.TopicAuthorizationFailed, kerr.GroupAuthorizationFailed, kerr.InvalidGroupID):
		return Fatal

	// Deleted, or deleted and made again under a new id: the old position
	// means nothing there.
	case is(kerr.UnknownTopicOrPartition, kerr.UnknownTopicID):
		return Fatal
	}
	var ke *kerr.Error
	if errors.As(err, &ke) && !ke.Retriable {
		return Fatal // a code that brokers do not answer to commits today
	}
	// No answer at all: broken connection, deadline, client closed. Stored
	// or not; the next commit says the same again or more.
	return RetryLater
}
