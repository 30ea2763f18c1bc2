//go:build unix

package bench

import (
	"context"
	"errors"
	"fmt"

	"github.com/killick-io/killick/testenv/kafkaenv"
)

// startKafka starts a broker as for measuring. stop ends it and removes its data.
func startKafka(ctx context.Context) (address, what string, stop func() error, err error) {
	c, err := kafkaenv.New(ctx, kafkaenv.ForLoad())
	switch {
	case errors.Is(err, kafkaenv.ErrMissing):
		return "", "", nil, fmt.Errorf("bench: %w; or name a Kafka that runs with --kafka host:port", err)
	case err != nil:
		return "", "", nil, fmt.Errorf("bench: %w", err)
	}
	return c.Addrs()[0], fmt.Sprintf("Apache Kafka %s, one broker on this machine", kafkaenv.Latest), c.Close, nil
}
