package core

// Headers returns a copy of hs in another type of the same shape: that of users, of the engine, or
// of the Kafka client. Values are shared. nil stays nil.
func Headers[To, From ~struct {
	Key   string
	Value []byte
}](hs []From) []To {
	if hs == nil {
		return nil
	}
	out := make([]To, len(hs))
	for i, h := range hs {
		out[i] = To(h)
	}
	return out
}
