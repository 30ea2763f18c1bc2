//go:build unix

package worker

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/killick-io/killick/internal/tty"
)

// others asks for the signals that do not end the process.
func (p *program) others(ch chan<- os.Signal) {
	signal.Notify(ch, syscall.SIGTSTP, syscall.SIGCONT, syscall.SIGUSR1)
	// Of a program on a terminal it says that the terminal has gone, and ends it; nohup ignores it.
	if f, ok := p.stderr.(*os.File); !signal.Ignored(syscall.SIGHUP) && !(ok && tty.Is(f)) {
		signal.Notify(ch, syscall.SIGHUP)
	}
}

// other handles one of them.
func (p *program) other(w *Worker, s os.Signal) {
	switch s {
	case syscall.SIGTSTP:
		w.log.Info().Int("pid", os.Getpid()).Msg("SIGTSTP: all spouts pause; SIGCONT lets them go on")
		w.setPauses(func(by wish) wish { return by | bySignal })
	case syscall.SIGCONT: // comes after a SIGSTOP, too, and then means nothing
		w.setPauses(func(by wish) wish { return by &^ bySignal })
	case syscall.SIGHUP:
		p.reload(w)
	case syscall.SIGUSR1:
		w.dump()
	}
}
