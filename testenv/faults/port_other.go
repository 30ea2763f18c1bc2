//go:build !linux || mips || mipsle || mips64 || mips64le

package faults

import (
	"context"
	"net"
)

// reservation would keep a port while nobody listens at it. Here another process may take it, which
// Link.Heal then says.
type reservation struct{ port int }

func reserve() (*reservation, error) { return nil, nil }

func (r *reservation) close() {}

func listen(ctx context.Context, address string) (net.Listener, error) {
	var lc net.ListenConfig
	return lc.Listen(ctx, "tcp4", address)
}
