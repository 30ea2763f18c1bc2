package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A shortened run as go 1.26 reports it: a package that passes, one with a failed subtest, one that
// does not build, one whose TestMain exits, one whose test never ends.
const stream = `go: a line that is no event
{"Action":"start","Package":"m/a"}
{"Action":"run","Package":"m/a","Test":"TestOne"}
{"Action":"output","Package":"m/a","Test":"TestOne","Output":"=== RUN   TestOne\n"}
{"Action":"output","Package":"m/a","Test":"TestOne","Output":"noise of a test that passes\n"}
{"Action":"pass","Package":"m/a","Test":"TestOne"}
{"Action":"skip","Package":"m/a","Test":"TestTwo"}
{"Action":"output","Package":"m/a","Output":"PASS\n"}
{"Action":"output","Package":"m/a","Output":"ok  \tm/a\t0.1s\n"}
{"Action":"pass","Package":"m/a"}
{"Action":"output","Package":"m/b","Test":"TestX","Output":"=== RUN   TestX\n"}
{"Action":"output","Package":"m/b","Test":"TestX/sub","Output":"    x_test.go:7: bad\n"}
{"Action":"output","Package":"m/b","Test":"TestX/sub","Output":"    --- FAIL: TestX/sub (0.00s)\n"}
{"Action":"fail","Package":"m/b","Test":"TestX/sub"}
{"Action":"output","Package":"m/b","Test":"TestX","Output":"--- FAIL: TestX (0.00s)\n"}
{"Action":"fail","Package":"m/b","Test":"TestX"}
{"Action":"output","Package":"m/b","Output":"FAIL\n"}
{"Action":"output","Package":"m/b","Output":"FAIL\tm/b\t0.1s\n"}
{"Action":"fail","Package":"m/b"}
{"ImportPath":"m/c","Action":"build-output","Output":"c.go:1: no\n"}
{"ImportPath":"m/c","Action":"build-fail"}
{"Action":"output","Package":"m/c","Output":"FAIL\tm/c [build failed]\n"}
{"Action":"fail","Package":"m/c","FailedBuild":"m/c"}
{"Action":"output","Package":"m/d","Output":"leak\n"}
{"Action":"output","Package":"m/d","Output":"FAIL\tm/d\t0.1s\n"}
{"Action":"fail","Package":"m/d"}
{"Action":"output","Package":"m/e","Test":"TestHangs","Output":"panic: test timed out\n"}
{"Action":"output","Package":"m/e","Output":"FAIL\tm/e\t60s\n"}
{"Action":"fail","Package":"m/e"}
{"Action":"output","Package":"m/f","Output":"?   \tm/f\t[no test files]\n"}
{"Action":"skip","Package":"m/f"}
`

const shown = `go: a line that is no event
ok  	m/a	0.1s
    x_test.go:7: bad
    --- FAIL: TestX/sub (0.00s)
--- FAIL: TestX (0.00s)
FAIL	m/b	0.1s
FAIL
c.go:1: no
FAIL	m/c [build failed]
FAIL	m/d	0.1s
leak
FAIL	m/e	60s
panic: test timed out
?   	m/f	[no test files]
`

func TestSummary(t *testing.T) {
	var b bytes.Buffer
	s := newSummary(&b)
	if err := s.read(strings.NewReader(stream)); err != nil {
		t.Fatal(err)
	}
	if got, want := s.String(), "1 passed, 5 failed, 1 skipped"; got != want {
		t.Errorf("summary %q, want %q", got, want)
	}
	if d := cmp.Diff(shown, b.String()); d != "" {
		t.Errorf("shown (-want +got):\n%s", d)
	}
	if len(s.pkgs) != 0 {
		t.Errorf("%d packages are still running", len(s.pkgs))
	}
}

func TestRun(t *testing.T) {
	for _, tt := range []struct {
		name string
		args []string
		code int
		last string
	}{
		{"passes", []string{"-run=^Example$", "./testdata/pass"}, 0, "1 passed, 0 failed, 0 skipped"},
		{"fails", []string{"./testdata/fail"}, 1, "1 passed, 1 failed, 1 skipped"},
		{"does not build", []string{"./testdata/broken"}, 1, "0 passed, 1 failed, 0 skipped"},
		{"all skipped", []string{"-run=^TestSkip$", "./testdata/fail"}, 0, "0 passed, 0 failed, 1 skipped"},
		{"nothing ran", []string{"-run=^NoSuch$", "./testdata/pass"}, 1, "0 passed, 0 failed, 0 skipped"},
		{"no such package", []string{"./testdata/none"}, 1, "0 passed, 1 failed, 0 skipped"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out, errs bytes.Buffer
			code := run(tt.args, &out, &errs)
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			if last := lines[len(lines)-1]; code != tt.code || last != tt.last {
				t.Errorf("exit code %d, last line %q; want %d, %q\n%s%s", code, last, tt.code, tt.last, &out, &errs)
			}
		})
	}
}
