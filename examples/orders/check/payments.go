package check

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// ReadPayments reads the gateway's book: one JSON object a line, in the order of the calls. A line that is no whole
// payment is an error that names it: each line was written by one write call, so not even SIGKILL tears it.
func ReadPayments(r io.Reader) ([]Payment, error) {
	var (
		out  []Payment
		errs []error
		sc   = bufio.NewScanner(r)
	)
	for n := 1; sc.Scan(); n++ {
		var p Payment
		if err := strictJSON(sc.Bytes(), &p); err != nil {
			errs = append(errs, fmt.Errorf("check: payments:%d: %q: %w", n, sc.Bytes(), err))
			continue
		}
		if p.Order == 0 || p.Attempt < 1 || p.At <= 0 || p.Process == 0 {
			errs = append(errs, fmt.Errorf("check: payments:%d: %q: order, attempt, at and process must all be given", n, sc.Bytes()))
			continue
		}
		out = append(out, p)
	}
	if err := sc.Err(); err != nil {
		errs = append(errs, fmt.Errorf("check: read the payments: %w", err))
	}
	return out, errors.Join(errs...)
}

// strictJSON decodes exactly one value, without fields that v does not have.
func strictJSON(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one JSON value")
	}
	return nil
}
