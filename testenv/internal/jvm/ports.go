//go:build unix

package jvm

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports finds n free TCP ports of 127.0.0.1. They lie below the range from which systems take the
// ports of outgoing connections (Linux: from 32768 on), so that a server that is killed finds its
// port free when it is started again. Nothing reserves them: a server that finds its port taken
// says so, and is started with others.
func Ports(n int) ([]int, error) {
	const low, high = 11_000, 31_000
	var ports []int
	var open []net.Listener
	defer func() {
		for _, l := range open {
			l.Close()
		}
	}()
	var last error
	for range 1000 {
		if len(ports) == n {
			return ports, nil
		}
		port := low + rand.IntN(high-low)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			last = err
			continue
		}
		open = append(open, l)
		ports = append(ports, port)
	}
	return nil, fmt.Errorf("jvm: no %d free ports between %d and %d: %w", n, low, high, last)
}
