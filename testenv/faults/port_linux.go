//go:build linux && !mips && !mipsle && !mips64 && !mips64le

package faults

import (
	"context"
	"net"
	"syscall"
)

// reservation keeps a port while nobody listens at it: a socket that is bound to it and does not listen.
// Who connects is refused, and the port is given to nobody else; a listener with the same option may
// come and go beside it.
type reservation struct {
	fd   int
	port int
}

// soReusePort is SO_REUSEPORT, which package syscall lacks on some architectures.
const soReusePort = 0xf

func reserve() (*reservation, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	r := &reservation{fd: fd}
	err = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, soReusePort, 1)
	if err == nil {
		err = syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	}
	var sa syscall.Sockaddr
	if err == nil {
		sa, err = syscall.Getsockname(fd)
	}
	if err != nil {
		r.close()
		return nil, err
	}
	r.port = sa.(*syscall.SockaddrInet4).Port
	return r, nil
}

func (r *reservation) close() {
	if r != nil {
		_ = syscall.Close(r.fd)
	}
}

// listen listens beside a reservation.
func listen(ctx context.Context, address string) (net.Listener, error) {
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		cerr := c.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, soReusePort, 1) })
		if cerr != nil {
			return cerr
		}
		return err
	}}
	return lc.Listen(ctx, "tcp4", address)
}
