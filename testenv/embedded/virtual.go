package embedded

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"

	"github.com/twmb/franz-go/pkg/kfake"
)

// dialVirtual dials on a virtual network and makes its errors those of TCP.
// Clients decide by them: to kgo a broken pipe is a connection to open again,
// but net.Pipe's own io.ErrClosedPipe is an unknown failure that ends a group
// session, and a dial that nobody answers must read as refused.
func dialVirtual(vnet *kfake.VirtualNetwork) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := vnet.DialContext(ctx, network, address)
		if err == nil {
			return &virtualConn{Conn: c}, nil
		}
		host, _, splitErr := net.SplitHostPort(address)
		switch {
		case ctx.Err() != nil:
			return nil, &net.OpError{Op: "dial", Net: network, Err: ctx.Err()}
		case splitErr != nil:
			return nil, err
		case host != "localhost" && host != "127.0.0.1":
			return nil, &net.OpError{Op: "dial", Net: network, Err: &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}}
		}
		return nil, &net.OpError{Op: "dial", Net: network, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
}

// virtualConn is the client's end of a pipe.
type virtualConn struct {
	net.Conn
	closed atomic.Bool // by this end
}

func (c *virtualConn) Close() error {
	c.closed.Store(true)
	return c.Conn.Close()
}

func (c *virtualConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	return n, c.translate("read", err)
}

func (c *virtualConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	return n, c.translate("write", err)
}

func (c *virtualConn) translate(op string, err error) error {
	switch {
	case !errors.Is(err, io.ErrClosedPipe):
		return err
	case c.closed.Load():
		return &net.OpError{Op: op, Net: "tcp", Err: net.ErrClosed}
	default:
		return &net.OpError{Op: op, Net: "tcp", Err: os.NewSyscallError(op, syscall.EPIPE)}
	}
}
