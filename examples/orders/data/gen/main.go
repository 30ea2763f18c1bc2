// Command gen makes the orders of the example from the flights-20k table of the npm package vega-datasets 3.2.1
// (../README.md says how to get it). The same input gives the same bytes.
//
//	go run ./examples/orders/data/gen -flights flights-20k.json -out examples/orders/data/orders.tsv
package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"
)

const (
	// flightsSum is the SHA-256 of data/flights-20k.json in vega-datasets 3.2.1: other bytes give other orders, and
	// every count that the example's tests state would be wrong.
	flightsSum = "52f0ddd892d4569284b845e17323abc9afb7d303ec8f63251634a20327a610bb"

	// The table has 20,000 flights in order of departure, January to March 2001. Every third of the first 18,000
	// keeps the whole span.
	orders = 6000
	step   = 3

	// An order's id is firstID plus the row of its flight, so each order can be traced to its source row.
	firstID = 100_000

	// The price is a fee and a rate per mile.
	feeCents     = 2500
	centsPerMile = 12

	// poisonID is the order whose record is cut half way, as a torn write would leave it: undecodable JSON, once.
	poisonID = 106_000
)

// flight is one row of flights-20k.json.
type flight struct {
	Date        string `json:"date"`     // "2001/01/01 00:47", no zone
	Delay       int    `json:"delay"`    // minutes, negative when early
	Distance    int    `json:"distance"` // miles
	Origin      string `json:"origin"`
	Destination string `json:"destination"`
}

// order is the value of one input record; the field order is that of the file.
type order struct {
	ID       int64  `json:"id"`
	Customer string `json:"customer"`
	Item     string `json:"item"`
	Cents    int64  `json:"cents"`
	Delay    int    `json:"delay"`
	At       string `json:"at"`
}

func main() {
	flights := flag.String("flights", "", "path of flights-20k.json from vega-datasets 3.2.1")
	out := flag.String("out", "", "file to write, for example examples/orders/data/orders.tsv")
	flag.Parse()
	if err := run(*flights, *out); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(in, out string) error {
	var errs []error
	if in == "" {
		errs = append(errs, errors.New("gen: -flights is missing: give the path of flights-20k.json"))
	}
	if out == "" {
		errs = append(errs, errors.New("gen: -out is missing: give the file to write"))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	raw, err := os.ReadFile(in)
	if err != nil {
		return fmt.Errorf("gen: read the flights: %w", err)
	}
	if sum := sha256.Sum256(raw); hex.EncodeToString(sum[:]) != flightsSum {
		return fmt.Errorf("gen: %s has SHA-256 %x, want %s: take data/flights-20k.json of vega-datasets 3.2.1", in, sum, flightsSum)
	}
	var fs []flight
	if err := json.Unmarshal(raw, &fs); err != nil {
		return fmt.Errorf("gen: %s: %w", in, err)
	}
	var buf bytes.Buffer
	if err := write(&buf, fs, orders); err != nil {
		return err
	}
	if err := os.WriteFile(out, buf.Bytes(), 0o644); err != nil {
		return fmt.Errorf("gen: write the orders: %w", err)
	}
	return nil
}

// write makes n orders of every step-th flight, one "key TAB value LF" line each.
func write(w io.Writer, fs []flight, n int) error {
	if need := (n-1)*step + 1; len(fs) < need {
		return fmt.Errorf("gen: %d flights, %d orders need %d", len(fs), n, need)
	}
	bw := bufio.NewWriter(w)
	for i := range n {
		row := i * step
		o, err := orderOf(row, fs[row])
		if err != nil {
			return err
		}
		value, err := json.Marshal(o)
		if err != nil {
			return fmt.Errorf("gen: row %d: %w", row, err)
		}
		if o.ID == poisonID {
			value = value[:len(value)/2]
		}
		fmt.Fprintf(bw, "%s\t%s\n", o.Customer, value)
	}
	return bw.Flush() // the first failed write of Fprintf comes back here
}

func orderOf(row int, f flight) (order, error) {
	at, err := time.Parse("2006/01/02 15:04", f.Date)
	if err != nil {
		return order{}, fmt.Errorf("gen: row %d: date %q is not like 2001/01/31 23:59: %w", row, f.Date, err)
	}
	if f.Distance <= 0 || f.Origin == "" || f.Destination == "" {
		return order{}, fmt.Errorf("gen: row %d: a flight needs a distance, an origin and a destination, got %+v", row, f)
	}
	return order{
		ID:       firstID + int64(row),
		Customer: f.Origin,
		Item:     f.Destination,
		Cents:    feeCents + centsPerMile*int64(f.Distance),
		Delay:    f.Delay,
		At:       at.UTC().Format(time.RFC3339),
	}, nil
}
