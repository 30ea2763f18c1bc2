package check

import "encoding/json"

// The rules of the story, stated here a second time on purpose: the topology has its own.
const (
	limitCents    = 25_000  // above it the fraud check rejects
	brokenOrder   = 104_242 // the gateway answers each call for it with an error
	maxTries      = 5       // of the payment bolt
	declinedEvery = 499     // ids divisible by it are declined, for good
	twiceEvery    = 101     // ids divisible by it fail twice before they go through
	onceEvery     = 37      // ids divisible by it, and not by twiceEvery, fail once
)

// Outcomes of one payment call, and the states that a notification tells.
const (
	outcomePaid     = "paid"
	outcomeDeclined = "declined"
	outcomeError    = "error"

	statusPaid     = "paid"
	statusRejected = "rejected"
	statusFailed   = "payment failed"
)

type order struct {
	ID       int64  `json:"id"`
	Customer string `json:"customer"`
	Item     string `json:"item"`
	Cents    int64  `json:"cents"`
}

// notification is the whole value of an output: no other field may be in it.
type notification struct {
	Order    int64  `json:"order"`
	Customer string `json:"customer"`
	Item     string `json:"item"`
	Cents    int64  `json:"cents"`
	Status   string `json:"status"`
}

// want is what one input record must lead to.
type want struct {
	order  order
	poison bool     // the value is no JSON: order is empty
	status string   // of the notification; empty: a dead letter instead
	calls  []string // outcomes of the payment calls of one undisturbed run, in order
}

func (w want) dead() bool { return w.status == "" }

// notification is the output that w asks for. Only valid if !w.dead().
func (w want) notification() notification {
	return notification{w.order.ID, w.order.Customer, w.order.Item, w.order.Cents, w.status}
}

func expect(value []byte) want {
	var w want
	if err := json.Unmarshal(value, &w.order); err != nil {
		return want{poison: true}
	}
	if w.order.Cents > limitCents {
		w.status = statusRejected
		return w
	}
	if w.order.ID == brokenOrder {
		for range maxTries {
			w.calls = append(w.calls, outcomeError)
		}
		return w
	}
	fails := 0
	switch {
	case w.order.ID%twiceEvery == 0:
		fails = 2
	case w.order.ID%onceEvery == 0:
		fails = 1
	}
	for range fails {
		w.calls = append(w.calls, outcomeError)
	}
	w.status = statusPaid
	last := outcomePaid
	if w.order.ID%declinedEvery == 0 {
		w.status, last = statusFailed, outcomeDeclined
	}
	w.calls = append(w.calls, last)
	return w
}
