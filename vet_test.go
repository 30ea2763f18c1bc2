package killick_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// A copied tuple would be a view of whatever its task executes by then; vet finds copies.
func TestVetFindsCopies(t *testing.T) {
	src, err := os.ReadFile("testdata/copies/copies.go")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("go", "vet", "-copylocks", "./testdata/copies").CombinedOutput()
	if err == nil {
		t.Fatal("go vet has nothing to say")
	}
	for i, line := range strings.Split(string(src), "\n") {
		found := strings.Contains(string(out), fmt.Sprintf("copies.go:%d:", i+1))
		if want := strings.HasSuffix(line, "// copy"); want != found {
			t.Errorf("line %d, %q: found %v, want %v\n%s", i+1, strings.TrimSpace(line), found, want, out)
		}
	}
}
