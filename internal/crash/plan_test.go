package crash

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	got, err := Parse("before-commit:3:kill,revoked:1+:sleep(1.5s),left:2:exit,opened:10:stop")
	want := []Step{{At: BeforeCommit, N: 3, Do: Kill}, {At: Revoked, N: 1, On: true, Do: Sleep, For: 1500 * time.Millisecond},
		{At: Left, N: 2, Do: Exit}, {At: Opened, N: 10, Do: Stop}}
	if err != nil || !cmp.Equal(got, want) {
		t.Errorf("%v: %s", err, cmp.Diff(want, got))
	}
	text, err := Format(want...)
	if again, perr := Parse(text); err != nil || perr != nil || !cmp.Equal(again, want) {
		t.Errorf("%q, %v: %v, %v", text, err, again, perr)
	}
	if got, err := Parse(""); len(got) != 0 || err != nil {
		t.Errorf("nothing: %v, %v", got, err)
	}
	for text, says := range map[string][]string{
		"nowhere:1:kill":                     {`"nowhere" is no point`, "points.go"},
		"fetched:kill":                       {"point:n:action", `"fetched:kill"`},
		"fetched:0:kill":                     {"passage 0", "from 1"},
		"fetched:many:kill":                  {`"many"`},
		"fetched:1:burn":                     {`"burn" is no action`, "exit, kill, stop or sleep"},
		"fetched:1:sleep":                    {"sleep"},
		"fetched:1:sleep(long)":              {"long"},
		"fetched:1:sleep(-1s)":               {"-1s"},
		"nowhere:0:burn,,fetched:1:sleep(x)": {"no point", "passage 0", "no action", "point:n:action", `"x"`},
	} {
		_, err := Parse(text)
		for _, s := range says {
			if err == nil || !strings.Contains(err.Error(), s) {
				t.Errorf("%q: %v has no %q", text, err, s)
			}
		}
	}
	if _, err := Format(Step{At: "x"}, Step{At: Left, N: 1, Do: Kill, For: 1}); err == nil || !strings.Contains(err.Error(), `"x"`) || !strings.Contains(err.Error(), "kill for 1ns") {
		t.Errorf("%v", err)
	}
}
