package offsets

import "github.com/killick-io/killick/internal/rules"

// None is a State.Suspect that names no offset.
const None int64 = -1

// State is what a new owner has to know about the end of the one before it, so that a record that kills
// the process is found (a fatal error or os.Exit cannot be caught).
//
// The owner before it died if it has left TakenOver behind, and killed it whatever was open then. A record
// that kills is open at each of the deaths, so what may be it is in [Base, Until): from the floor, which it
// holds, to the least of what was open at a death. With CarefulDeaths of them the records there run alone,
// each named as Suspect before it does. Who is named at ConvictStrikes deaths is the one.
type State struct {
	// TakenOver is set by the first commit of an owner and cleared by its clean release. An owner that finds
	// it set knows that the one before it died.
	TakenOver bool

	// Deaths counts the owners in a row that died with something open below Until.
	Deaths int

	// Suspect is the offset that ran alone when its owner died, or None. An offset below the map's Base
	// has ended and so reads as None. The zero State suspects offset 0: fill the field.
	Suspect int64

	// Strikes counts the deaths at which Suspect was named. 0 without a suspect.
	Strikes int

	// Waits says that Suspect has strikes from owners before, and has not run under this one: a death is not
	// its fault. False without strikes.
	Waits bool

	// Until is the floor at which the hunt ends: what was open at each of the deaths has been passed. At or
	// below the map's Base (the zero value always is) there is no hunt.
	Until int64
}

const (
	// CarefulDeaths is from how many deaths on the records below Until run alone.
	CarefulDeaths = 3

	// ConvictStrikes is at how many deaths a suspect must have been named to be set aside unexecuted.
	ConvictStrikes = 2

	// Horizon is how far above the committed offset an owner starts records after a death, so that the
	// next death leaves few candidates: they are what careful mode has to run one by one.
	Horizon int64 = 256

	// reach is how far above what its last commit knew an owner is taken to have come that had no horizon:
	// a second or two of a fast partition. One that came farther costs the next owners a few deaths more.
	reach int64 = 1 << 18
)

// TakeOver returns the state of a new owner that finds m committed. end is the end of the log. own says that
// the mark in it is this process's own, which has lost the partition and has it back: nobody has died.
func (m Map) TakeOver(end int64, own bool) State {
	s := State{TakenOver: true, Suspect: None, Deaths: m.Held.Deaths, Until: m.Held.Until}
	if m.Held.Suspect != None && m.Held.Suspect >= m.Base && !m.Done(m.Held.Suspect) {
		s.Suspect, s.Strikes, s.Waits = m.Held.Suspect, m.Held.Strikes, m.Held.Waits
	}
	if s.Until <= m.Base {
		s.Deaths, s.Until = 0, 0
	}
	if m.Held.TakenOver && !own && rules.DeathsAreCounted {
		s.died(m, end)
	}
	if s.Strikes == 0 {
		s.Suspect = None // it ran, and nobody died of it
	}
	s.Waits = s.Accused()
	return s
}

// died adds a death.
func (s *State) died(m Map, end int64) {
	if s.Suspect != None && !(s.Waits && rules.WaitingIsNoGuilt) {
		s.Strikes++
	}
	open := min(end, max(m.Next, m.Base)+reach) // all that was open is below
	if s.Deaths > 0 || m.Held.Deaths > 0 {
		open = min(end, m.Base+Horizon)
	}
	if open <= m.Base {
		s.Deaths, s.Until = 0, 0 // nothing can have been
		return
	}
	if s.Deaths == 0 {
		s.Until = open
	}
	s.Deaths++
	s.Until = min(s.Until, open)
}

// Passed returns the state once the floor is at floor.
func (s State) Passed(floor int64) State {
	if floor >= s.Until {
		s.Deaths, s.Until = 0, 0
	}
	if floor > s.Suspect {
		s = s.Dropped()
	}
	return s
}

// Dropped returns the state without a suspect.
func (s State) Dropped() State {
	s.Suspect, s.Strikes, s.Waits = None, 0, false
	return s
}

// Watched says that an owner died of what may be open again: records are started up to Horizon above the
// committed offset only.
func (s State) Watched() bool { return s.Deaths > 0 }

// Careful says that records must run alone.
func (s State) Careful() bool { return s.Deaths >= CarefulDeaths || s.Accused() }

// Accused says that an owner has died while Suspect ran alone: it runs before all others, and alone.
func (s State) Accused() bool { return s.Suspect != None && s.Strikes > 0 }

// Convicted says that Suspect is what kills: it does not run any more.
func (s State) Convicted() bool { return s.Suspect != None && s.Strikes >= ConvictStrikes }
