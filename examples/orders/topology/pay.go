package topology

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/killick-io/killick"
)

// Gateway takes payments. One connection is used by one task, call by call.
type Gateway interface {
	// Charge asks for one payment. An error says that there is no answer: the call is made again.
	Charge(ctx context.Context, c Charge) (Outcome, error)
}

// Charge is one payment call.
type Charge struct {
	ID       string // the same on each replay: what a gateway that charges once would go by
	Order    int64
	Customer string
	Cents    int64
	Attempt  int // of this process, from 1
}

// Outcome is the gateway's answer.
type Outcome string

// All outcomes.
const (
	OutcomePaid     Outcome = "paid"
	OutcomeDeclined Outcome = "declined"
)

// errNoGateway is for who calls New without Connect: nothing that a retry would mend.
var errNoGateway = errors.New("topology: Config.Connect is not set: no payment gateway to call")

// payer is the bolt of one task. It runs on one goroutine.
type payer struct {
	connect func(context.Context) (Gateway, error)
	gateway Gateway // nil until Prepare
}

// Prepare connects. Tuples wait for it; an error is tried again by the bolt's policy.
func (p *payer) Prepare(ctx context.Context, _ killick.Task) (err error) {
	if p.connect == nil {
		return killick.Permanent(errNoGateway)
	}
	p.gateway, err = p.connect(ctx)
	return err
}

func (p *payer) Execute(ctx context.Context, in *killick.Tuple, out killick.Emitter) error {
	o := in.Value().(Order)
	outcome, err := p.gateway.Charge(ctx, Charge{
		ID: in.ID(), Order: o.ID, Customer: o.Customer, Cents: o.Cents, Attempt: in.Attempt(),
	})
	if err != nil {
		return fmt.Errorf("charge order %d: %w", o.ID, err)
	}
	s := Settled{Order: o}
	switch outcome {
	case OutcomePaid:
		s.Status = Paid
	case OutcomeDeclined:
		s.Status = PaymentFailed
	default:
		return killick.Permanent(fmt.Errorf("charge order %d: the gateway answered %q: want %q or %q",
			o.ID, outcome, OutcomePaid, OutcomeDeclined))
	}
	out.Emit(killick.Message{Key: in.Key(), Value: s})
	return nil
}

// Cleanup hangs up.
func (p *payer) Cleanup(context.Context) error {
	if c, ok := p.gateway.(io.Closer); ok {
		return c.Close()
	}
	return nil
}
