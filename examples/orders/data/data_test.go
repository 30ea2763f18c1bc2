package data

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"
)

// The counts that README.md and the checker's tests state hold for these bytes only.
const ordersSum = "214a7f9e1c816a463a0108fd636daa24a41f1df57b934dff7377b98eee18d103"

func TestFileIsTheGeneratedOne(t *testing.T) {
	if sum := sha256.Sum256(orders); hex.EncodeToString(sum[:]) != ordersSum {
		t.Fatalf("orders.tsv has SHA-256 %x, want %s: a checkout that changes line ends, or a hand edit", sum, ordersSum)
	}
}

func TestRecords(t *testing.T) {
	rs, err := Records()
	if err != nil {
		t.Fatal(err)
	}
	if len(rs) != 6000 {
		t.Fatalf("%d records, want 6000", len(rs))
	}
	seen := map[int64]bool{}
	var broken []int
	for i, r := range rs {
		var o struct {
			ID             int64
			Customer, Item string
			Cents          int64
			At             string
		}
		if err := json.Unmarshal(r.Value, &o); err != nil {
			broken = append(broken, i+1)
			continue
		}
		if seen[o.ID] {
			t.Errorf("line %d: order %d is there twice", i+1, o.ID)
		}
		seen[o.ID] = true
		if o.Customer != string(r.Key) || o.Item == "" || o.Cents <= 0 || o.At == "" {
			t.Errorf("line %d: key %q, order %+v", i+1, r.Key, o)
		}
	}
	if len(broken) != 1 || broken[0] != 2001 {
		t.Errorf("undecodable values in lines %v, want only 2001", broken)
	}
}

func TestDamagedFileIsNamed(t *testing.T) {
	for _, c := range []struct{ in, line string }{
		{"k\tv\nno tab\n", "orders.tsv:2"},
		{"k\tv\nk\tcut", "orders.tsv:2"},
		{"\tv\n", "orders.tsv:1"},
		{"k\t\n", "orders.tsv:1"},
	} {
		if _, err := parse([]byte(c.in)); err == nil || !strings.Contains(err.Error(), c.line) {
			t.Errorf("%q: error %v, want one that names %s", c.in, err, c.line)
		}
	}
}
