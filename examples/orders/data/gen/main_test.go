package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWriteMapsFlightsToOrders(t *testing.T) {
	fs := []flight{
		{"2001/01/01 00:47", 66, 1750, "DTW", "LAS"},
		{"2001/01/01 01:10", 95, 2399, "HNL", "SFO"},
		{"2001/01/01 01:24", -5, 407, "LAS", "OAK"},
		{"2001/03/31 22:27", -9, 83, "CLT", "GSO"},
	}
	want := "DTW\t" + `{"id":100000,"customer":"DTW","item":"LAS","cents":23500,"delay":66,"at":"2001-01-01T00:47:00Z"}` + "\n" +
		"CLT\t" + `{"id":100003,"customer":"CLT","item":"GSO","cents":3496,"delay":-9,"at":"2001-03-31T22:27:00Z"}` + "\n"
	var b strings.Builder
	if err := write(&b, fs, 2); err != nil {
		t.Fatal(err)
	}
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}

func TestBadInputIsNamed(t *testing.T) {
	wrong := filepath.Join(t.TempDir(), "flights.json")
	if err := os.WriteFile(wrong, []byte("[]"), 0o600); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "orders.tsv")
	for _, c := range []struct {
		name string
		err  error
		want []string
	}{
		{"no flags", run("", ""), []string{"-flights", "-out"}},
		{"no file", run("/nowhere/flights.json", out), []string{"/nowhere/flights.json"}},
		{"other data", run(wrong, out), []string{wrong, flightsSum, "3.2.1"}},
		{"too few", write(&strings.Builder{}, make([]flight, 3), 2), []string{"3 flights", "4"}},
		{"bad date", write(&strings.Builder{}, []flight{{"1 Jan", 0, 1, "A", "B"}}, 1), []string{"row 0", "1 Jan"}},
		{"no distance", write(&strings.Builder{}, []flight{{"2001/01/01 00:47", 0, 0, "A", "B"}}, 1), []string{"row 0", "distance"}},
	} {
		if c.err == nil {
			t.Errorf("%s: no error", c.name)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(c.err.Error(), w) {
				t.Errorf("%s: %q does not name %q", c.name, c.err, w)
			}
		}
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("a refused run left a file behind")
	}
}
