package balance

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func TestWire(t *testing.T) {
	t.Parallel()
	facts := []Facts{
		{Shape: "s", Number: NoNumber},
		{Place: "web-0", Number: 3, Shape: "12ab", Plan: 9, Stopping: true, Single: true, Released: []Part{{"a", 1}, {"a", 2}, {"b", 0}}},
	}
	for _, f := range facts {
		got, err := DecodeFacts(f.Encode())
		if err != nil || !reflect.DeepEqual(got, f) {
			t.Errorf("%+v came back as %+v, %v", f, got, err)
		}
	}
	grants := []Grant{
		{Echo: Echo{Shape: "s"}},
		{Asks: []Part{{"a", 1}, {"b", 0}}, Number: 2, AllStop: true, Standby: "because", Echo: Echo{"s", 4, true}},
	}
	for _, g := range grants {
		got, err := DecodeGrant(g.Encode())
		if err != nil || !reflect.DeepEqual(got, g) {
			t.Errorf("%+v came back as %+v, %v", g, got, err)
		}
	}
	if n := len((&Facts{Place: "orders-0", Number: 12, Shape: "0123456789abcdef"}).Encode()); n > 80 {
		t.Errorf("a member's facts take %d bytes", n)
	}
}

// A pattern may match thousands of topics with long names. All of them may be asked for at once, and be
// released.
func TestWireOfManyTopics(t *testing.T) {
	t.Parallel()
	var parts []Part
	for i := range 5000 {
		parts = append(parts, Part{fmt.Sprintf("production.warehouse.public.some_table_%04d", i), 0})
	}
	f := Facts{Shape: "s", Released: parts}
	if got, err := DecodeFacts(f.Encode()); err != nil || !reflect.DeepEqual(got, f) {
		t.Errorf("facts of %d bytes: %v", len(f.Encode()), err)
	}
	g := Grant{Asks: parts, Echo: Echo{Shape: "s"}}
	if got, err := DecodeGrant(g.Encode()); err != nil || !reflect.DeepEqual(got, g) {
		t.Errorf("a grant of %d bytes: %v", len(g.Encode()), err)
	}
}

func TestForeign(t *testing.T) {
	t.Parallel()
	for _, data := range []string{"", "null", "{}", "\x00\x01", `{"v":2,"n":0,"shape":"s"}`, `{"v":1,"n":0}`, `{"v":1,"n":-7,"shape":"s"}`,
		`{"v":1,"n":"x","shape":"s"}`, `{"v":1,"n":0,"shape":"` + strings.Repeat("s", maxData) + `"}`} {
		if f, err := DecodeFacts([]byte(data)); !errors.Is(err, ErrForeign) {
			t.Errorf("%.60q is taken for %+v, %v", data, f, err)
		}
	}
	for _, data := range []string{"", "[]", `{"v":0,"n":0}`, `{"v":1,"n":-1}`} {
		if g, err := DecodeGrant([]byte(data)); !errors.Is(err, ErrForeign) {
			t.Errorf("%.60q is taken for %+v, %v", data, g, err)
		}
	}
	// A later version may add fields.
	if f, err := DecodeFacts([]byte(`{"v":1,"n":0,"shape":"s","rack":"r1"}`)); err != nil || f.Shape != "s" {
		t.Errorf("an unknown field: %+v, %v", f, err)
	}
}

// FuzzWire: what others put into the group cannot do harm, and what is understood comes back as it is.
func FuzzWire(f *testing.F) {
	f.Add([]byte(`{"v":1,"place":"p","n":3,"shape":"s","released":{"t":[2,1,1]}}`))
	f.Add([]byte(`{"v":1,"n":0,"asks":{"t":[0]},"shape":"s"}`))
	f.Add([]byte("\x00\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if facts, err := DecodeFacts(data); err == nil {
			if again, err := DecodeFacts(facts.Encode()); err != nil || !reflect.DeepEqual(again, facts) {
				t.Errorf("%+v came back as %+v, %v", facts, again, err)
			}
		} else if !errors.Is(err, ErrForeign) {
			t.Error(err)
		}
		if g, err := DecodeGrant(data); err == nil {
			if again, err := DecodeGrant(g.Encode()); err != nil || !reflect.DeepEqual(again, g) {
				t.Errorf("%+v came back as %+v, %v", g, again, err)
			}
		} else if !errors.Is(err, ErrForeign) {
			t.Error(err)
		}
	})
}
