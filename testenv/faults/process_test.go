//go:build unix

package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/killick-io/killick/testenv/verify"
)

// childMain is what the processes of this package's tests do.
func childMain(role string) int {
	switch role {
	case "killick":
		return workerMain()
	case "worker": // one effect after another, until SIGTERM
		return count(0)
	case "slow": // the same, and waits after each ten
		return count(time.Millisecond)
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
		fmt.Println("ready")
		select {}
	case "ends": // by itself, as the variable says
		fmt.Println("one\ntwo\nlast words")
		if os.Getenv("HOW") == "panic" {
			panic("oh no")
		}
		var code int
		fmt.Sscan(os.Getenv("HOW"), &code)
		return code
	case "parent": // starts others, and is about to be killed
		ps, err := NewProcesses(ProcessesConfig{Role: "stubborn", Dir: os.Getenv("CHILDREN")})
		if err == nil {
			a, b := ps.Process("a"), ps.Process("b")
			err = errors.Join(a.Start(), b.Start())
			// They have nothing to write any more, which would end them when the pipe has no reader.
			err = errors.Join(err, a.WaitOutput(context.Background(), "ready"), b.WaitOutput(context.Background(), "ready"), b.Stop())
		}
		fmt.Println("started", ps.Process("a").PID(), ps.Process("b").PID(), err)
		select {}
	}
	fmt.Println("no such role:", role)
	return 1
}

func count(pause time.Duration) int {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	log, err := OpenLog()
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("ready")
	for i := range int64(1 << 40) {
		if err := log.Effect(Record{Topic: "in", Offset: i}); err != nil {
			fmt.Println(err)
			return 1
		}
		if i == 100 {
			fmt.Println("a hundred")
		}
		if pause > 0 && i%10 == 0 {
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			break
		}
	}
	if err := log.End(0); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// doings is what the runner noted of a process.
func doings(evs []verify.Event, proc string) (out []string) {
	for _, e := range evs {
		if e.Target == proc {
			s := fmt.Sprintf("%s %d", e.Kind, e.LifeOf)
			if e.Kind == "exit" {
				s += fmt.Sprintf(" %d %s", e.Code, e.Signal)
			}
			out = append(out, s)
		}
	}
	return out
}

// A process is killed and started again, and ended: what it has noted is there, and what was done to it.
func TestProcessLives(t *testing.T) {
	ctx := limited(t)
	ps := StartProcesses(t, ProcessesConfig{Role: "slow"}, "w1", "w2")
	w1, w2 := ps.Process("w1"), ps.Process("w2")
	must(t, w1.WaitOutput(ctx, "a hundred"), w2.WaitOutput(ctx, "a hundred"))
	first := w1.PID()
	if w1.Name() != "w1" || w1.Life() != 1 || !w1.Running() || first == 0 || first == w2.PID() {
		t.Errorf("%s, life %d, %d", w1.Name(), w1.Life(), first)
	}
	must(t, w1.Kill())
	if e, err := w1.Wait(ctx); err != nil || e != (Exit{Proc: "w1", Life: 1, PID: first, Code: -1, Signal: syscall.SIGKILL, Asked: true, Output: w1.Output()}) {
		t.Errorf("%+v, %v", e, err)
	}
	if w1.Running() {
		t.Error("it runs")
	}
	must(t, w1.Start(), w1.WaitOutput(ctx, "ready"), w1.Term())
	e, err := w1.Wait(ctx)
	if err != nil || e.Code != 0 || e.Signal != 0 || e.Life != 2 || !e.Asked || e.PID == first {
		t.Errorf("%+v, %v", e, err)
	}
	if !w2.Running() {
		t.Error("the other one does not run")
	}
	must(t, ps.Close())
	evs := events(t, ps.Dir())
	if got, want := doings(evs["runner-1.jsonl"], "w1"), []string{"spawn 1", "kill 1", "exit 1 -1 killed", "spawn 2", "term 2", "exit 2 0 "}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := doings(evs["runner-1.jsonl"], "w2"), []string{"spawn 1", "kill 1", "exit 1 -1 killed"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	for file, ended := range map[string]bool{"w1-1.jsonl": false, "w1-2.jsonl": true, "w2-1.jsonl": false} {
		f := evs[file]
		if len(f) < 2 || f[0].Kind != "start" || (f[len(f)-1].Kind == "end") != ended {
			t.Errorf("%s has %d events", file, len(f))
		}
	}
	if f := evs["w1-1.jsonl"]; f[0].PID != int64(first) || len(f) < 100 {
		t.Errorf("%d events of %d", len(f), f[0].PID)
	}
	if e := evs["runner-1.jsonl"][0]; e.Proc != "runner" || e.TargetPID == 0 || e.PID != int64(os.Getpid()) {
		t.Errorf("%+v", e)
	}
}

// A process that stands still does nothing, and goes on where it was.
func TestProcessStandsStill(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux shows whether a process stands still")
	}
	ctx := limited(t)
	ps := StartProcesses(t, ProcessesConfig{Role: "slow"}, "w")
	w := ps.Process("w")
	must(t, w.WaitOutput(ctx, "ready"))
	for range 100 { // when Stop returns, it does
		must(t, w.Stop())
		st, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", w.PID()))
		if _, state, _ := strings.Cut(string(st), ") "); err != nil || !strings.HasPrefix(state, "T") {
			t.Fatalf("%s: %v", st, err)
		}
		must(t, w.Cont())
	}
	must(t, w.Stop())
	size := func() int64 {
		t.Helper()
		st, err := os.Stat(filepath.Join(ps.Dir(), "w-1.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		return st.Size()
	}
	before := size()
	out, err := exec.Command(os.Args[0], "-test.run=^$").CombinedOutput() // others run meanwhile
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if got := size(); got != before {
		t.Errorf("it has written %d bytes", got-before)
	}
	must(t, w.Cont())
	ctx = limited(t)
	for size() == before {
		if ctx.Err() != nil {
			t.Fatal("it does not go on")
		}
		runtime.Gosched()
	}
	must(t, w.Stop(), w.Kill(), ps.Close()) // also one that stands still
	got := doings(events(t, ps.Dir())["runner-1.jsonl"], "w")
	if want := []string{"stop 1", "cont 1", "stop 1", "kill 1", "exit 1 -1 killed"}; len(got) != 206 || !slices.Equal(got[201:], want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// An end that nobody asked for fails the test, says what the process has said last, and keeps the files.
func TestProcessEndsByItself(t *testing.T) {
	for how, want := range map[string]struct {
		failed bool
		says   []string
	}{
		"0":     {false, nil},
		"3":     {true, []string{"process w, life 1: exit code 3, and nobody has asked it to end", "two\nlast words", "event files and outputs of the processes are in "}},
		"panic": {true, []string{"exit code 2", "panic: oh no", "event files"}},
	} {
		t.Run(how, func(t *testing.T) {
			tb := &fakeTB{}
			ps := StartProcesses(tb, ProcessesConfig{Role: "ends", Env: []string{"HOW=" + how}}, "w")
			e, err := ps.Process("w").Wait(limited(t))
			if err != nil || e.Asked {
				t.Errorf("%+v, %v", e, err)
			}
			tb.end()
			if tb.failed != want.failed {
				t.Errorf("failed: %v\n%s", tb.failed, tb.text())
			}
			for _, s := range want.says {
				if !strings.Contains(tb.text(), s) {
					t.Errorf("no %q in\n%s", s, tb.text())
				}
			}
			_, err = os.Stat(filepath.Join(ps.Dir(), "w-1.log"))
			if kept := err == nil; kept != want.failed {
				t.Errorf("the files are kept: %v", kept)
			}
			if want.failed {
				must(t, os.RemoveAll(ps.Dir()))
			}
		})
	}
}

// A supervisor's way: who ends by itself is started again, and who was asked to end is not.
func TestProcessIsRestarted(t *testing.T) {
	ends := make(chan Exit, 10)
	ps := StartProcesses(t, ProcessesConfig{Role: "ends", Env: []string{"HOW=5"}, Restart: func(e Exit) bool {
		ends <- e
		return e.Life < 4
	}}, "w")
	for i := range 4 {
		select {
		case e := <-ends:
			if e.Life != i+1 || e.Code != 5 || e.Asked {
				t.Errorf("%+v", e)
			}
		case <-limited(t).Done():
			t.Fatal("it is not restarted")
		}
	}
	w := ps.Process("w")
	if _, err := w.Wait(limited(t)); err != nil || w.Life() != 4 {
		t.Errorf("life %d, %v", w.Life(), err)
	}
	v := StartProcesses(t, ProcessesConfig{Role: "stubborn", Restart: func(Exit) bool { t.Error("asked"); return true }}, "v")
	must(t, v.Process("v").Kill(), v.Err())
	if v.Process("v").Running() {
		t.Error("it was restarted")
	}
}

// Processes do not outlive a test that is killed, not even those that stand still.
func TestOrphansDie(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux kills orphans")
	}
	ctx := limited(t)
	ps := StartProcesses(t, ProcessesConfig{Role: "parent", Env: []string{"CHILDREN=" + t.TempDir()}}, "p")
	p := ps.Process("p")
	must(t, p.WaitOutput(ctx, "<nil>"))
	out, err := os.ReadFile(p.Output())
	must(t, err)
	var a, b int
	if _, err := fmt.Sscanf(string(out), "started %d %d", &a, &b); err != nil || a == 0 || b == 0 {
		t.Fatalf("%q: %v", out, err)
	}
	alive := func(pid int) bool {
		st, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return false
		}
		_, state, _ := strings.Cut(string(st), ") ")
		return !strings.HasPrefix(state, "Z") // whose end nobody has waited for yet
	}
	if !alive(a) || !alive(b) {
		t.Fatal("they have not lived")
	}
	must(t, p.Kill())
	for alive(a) || alive(b) {
		if ctx.Err() != nil {
			t.Fatal("they live on")
		}
		runtime.Gosched()
	}
}

func TestWaitOutput(t *testing.T) {
	ps := StartProcesses(t, ProcessesConfig{Role: "ends", Env: []string{"HOW=0"}}, "w")
	w := ps.Process("w")
	must(t, w.WaitOutput(limited(t), "two"), w.WaitOutput(limited(t), "ast wor"), w.WaitOutput(limited(t), "one"))
	if err := w.WaitOutput(limited(t), "three"); err == nil || !strings.Contains(err.Error(), `has ended and not written "three"`) || !strings.Contains(err.Error(), w.Output()) {
		t.Errorf("%v", err)
	}
	if err := w.WaitOutput(limited(t), "one\ntwo"); err == nil {
		t.Error("a text over two lines")
	}
	v := StartProcesses(t, ProcessesConfig{Role: "stubborn"}, "v").Process("v")
	ctx, cancel := context.WithCancel(limited(t))
	cancel()
	if err := v.WaitOutput(ctx, "never"); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), `"never"`) {
		t.Errorf("%v", err)
	}
	if _, err := v.Wait(ctx); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "process v, life 1, has not ended") {
		t.Errorf("%v", err)
	}
}

func TestProcessErrors(t *testing.T) {
	_, err := NewProcesses(ProcessesConfig{Env: []string{"secret", "=x"}, Limit: -1})
	for _, want := range []string{"NAME=value", "Limit is -1ns"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v has no %q", err, want)
		}
	}
	ps := StartProcesses(t, ProcessesConfig{Role: "stubborn"}, "w")
	if _, err := NewProcesses(ProcessesConfig{Dir: ps.Dir()}); !errors.Is(err, os.ErrExist) {
		t.Errorf("a folder of others: %v", err)
	}
	if err := ps.Process("w").Start(); err == nil || !strings.Contains(err.Error(), "it is running, life 1") {
		t.Errorf("%v", err)
	}
	for _, name := range []string{"runner", "proxy", "W", "a-b", ""} {
		if err := ps.Process(name).Start(); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q is no name", name)) {
			t.Errorf("%v", err)
		}
	}
	x := ps.Process("x")
	_, werr := x.Wait(limited(t))
	for _, err := range []error{x.Kill(), x.Term(), x.Stop(), x.Cont(), x.WaitOutput(limited(t), ""), x.WaitStopped(limited(t)), werr} {
		if !errors.Is(err, ErrNotRunning) || !strings.Contains(err.Error(), "x") {
			t.Errorf("%v", err)
		}
	}
	if x.Running() || x.Life() != 0 || x.PID() != 0 || x.Output() != "" {
		t.Error("it has not been there")
	}
	must(t, ps.Process("w").Kill(), ps.Close(), ps.Close())
	if err := ps.Process("w").Kill(); !errors.Is(err, ErrNotRunning) {
		t.Errorf("%v", err)
	}
	if err := x.Start(); !errors.Is(err, ErrNoProcesses) {
		t.Errorf("%v", err)
	}
	bad := StartProcesses(t, ProcessesConfig{Program: filepath.Join(t.TempDir(), "missing")})
	if err := bad.Process("w").Start(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
	if _, err := OpenLog(); err == nil || !strings.Contains(err.Error(), "not started by Processes") {
		t.Errorf("%v", err)
	}
}

// A plan is carried out, and all processes run at its end.
func TestRunPlan(t *testing.T) {
	procs := []string{"a", "b", "c"}
	plan, err := NewPlan(Seed(t), PlanConfig{Procs: procs, For: 600 * time.Millisecond, Every: 60 * time.Millisecond, Kill: 2, Term: 1, Freeze: 1,
		Away: Span{Max: 20 * time.Millisecond}, Frozen: Span{Max: 20 * time.Millisecond}, Up: 1})
	must(t, err)
	ps := StartProcesses(t, ProcessesConfig{Role: "slow"}, procs...)
	for _, p := range procs {
		must(t, ps.Process(p).WaitOutput(limited(t), "ready"))
	}
	if err := ps.Run(limited(t), plan); err != nil {
		t.Fatalf("%v\n%v", err, plan)
	}
	for _, p := range procs {
		if !ps.Process(p).Running() {
			t.Errorf("%s does not run", p)
		}
	}
	must(t, ps.Close())
	kinds := map[MoveKind]string{MoveKill: "kill", MoveTerm: "term", MoveFreeze: "stop", MoveThaw: "cont", MoveStart: "spawn"}
	evs := events(t, ps.Dir())["runner-1.jsonl"]
	for _, p := range procs {
		want := []string{"spawn"}
		for _, m := range plan.Moves {
			if m.Proc == p {
				want = append(want, kinds[m.Do])
			}
		}
		want = append(want, "kill") // by Close
		var got []string
		for _, e := range evs {
			if e.Target == p && e.Kind != "exit" {
				got = append(got, e.Kind)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", p, got, want)
		}
	}
}

// A plan ends at the first thing that goes wrong, and says what it was about to do.
func TestRunPlanFails(t *testing.T) {
	long := []Move{{time.Hour, MoveKill, "w"}}
	ps := StartProcesses(t, ProcessesConfig{Role: "stubborn"}, "w")
	must(t, ps.Process("w").WaitOutput(limited(t), "ready"))
	short, cancel := context.WithTimeout(limited(t), 500*time.Millisecond)
	defer cancel()
	err := ps.Run(short, Plan{Moves: []Move{{0, MoveTerm, "w"}, {1, MoveStart, "w"}}})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "0s start w") || !strings.Contains(err.Error(), "process w, life 1, has not ended") {
		t.Errorf("one that does not obey: %v", err)
	}
	ctx, stop := context.WithCancel(limited(t))
	stop()
	if err := ps.Run(ctx, Plan{Moves: long}); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "1h0m0s kill w") {
		t.Errorf("%v", err)
	}
	if err := ps.Run(limited(t), Plan{Moves: []Move{{0, MoveThaw, "x"}}}); !errors.Is(err, ErrNotRunning) {
		t.Errorf("%v", err)
	}
	if err := ps.Run(limited(t), Plan{Moves: []Move{{0, "dance", "w"}}}); err == nil || !strings.Contains(err.Error(), `"dance" is no move`) {
		t.Errorf("%v", err)
	}
	tb := &fakeTB{}
	bad := StartProcesses(tb, ProcessesConfig{Role: "ends", Env: []string{"HOW=9"}}, "w")
	if err := bad.Run(limited(t), Plan{Moves: long}); err == nil || !strings.Contains(err.Error(), "exit code 9") {
		t.Errorf("%v", err)
	}
	tb.end()
	must(t, os.RemoveAll(bad.Dir()))
}

// Crash points of a program that has them.
func TestCrash(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "child")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-race=false", "-tags=killick_crash", "-o", bin, "../../internal/crash/testdata/child").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ps := StartProcesses(t, ProcessesConfig{Program: bin, Args: []string{"opened", "renewed", "opened", "lost"}})
	w := ps.Process("w")
	for _, tt := range []struct {
		points, says string
		code         int
		signal       syscall.Signal
	}{
		{"opened:2:exit", "passed renewed\ncrash point opened passage 2: exit\n", 97, 0},
		{"renewed:1:kill,lost:1:exit", "passed opened\ncrash point renewed passage 1: kill\n", -1, syscall.SIGKILL},
		{"", "passed opened\npassed renewed\npassed opened\npassed lost\nenabled true\n", 0, 0}, // it was for one life
	} {
		if tt.points != "" {
			must(t, w.Crash(tt.points))
		}
		must(t, w.Start())
		e, err := w.Wait(limited(t))
		if err != nil || e.Code != tt.code || e.Signal != tt.signal || e.Asked || e.Armed != (tt.points != "") {
			t.Errorf("%q: %+v, %v", tt.points, e, err)
		}
		if got, err := os.ReadFile(e.Output); err != nil || !strings.HasSuffix(string(got), tt.says) {
			t.Errorf("%q: %q, %v", tt.points, got, err)
		}
	}
	must(t, w.Crash("opened:1:stop"), w.Start(), w.WaitOutput(limited(t), "crash point opened passage 1: stop"),
		w.WaitStopped(limited(t)), w.Cont(), w.WaitOutput(limited(t), "enabled true"))
	if err := w.Crash("nowhere:1:kill,opened:0:exit"); err == nil || !strings.Contains(err.Error(), `"nowhere" is no point`) || !strings.Contains(err.Error(), "passage 0") {
		t.Errorf("%v", err)
	}
	if err := w.Crash(""); err == nil {
		t.Error("no points")
	}
	own := StartProcesses(t, ProcessesConfig{})
	if err := own.Process("w").Crash("opened:1:kill"); CrashBuild() != (err == nil) || err != nil && !errors.Is(err, ErrNoCrashPoints) {
		t.Errorf("%v", err)
	}
	if ps := CrashPoints(); len(ps) < 15 || !slices.Contains(ps, "before-commit") || !slices.IsSorted(ps) {
		t.Errorf("%q", ps)
	}
}
