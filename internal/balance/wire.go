package balance

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// version is that of the user data which members and leaders exchange. A reader takes what it knows of
// its own version, and nothing of a higher one.
const version = 1

// maxData bounds the user data that are read, in bytes. Our own are bounded by the broker, which keeps all
// members' metadata and assignments in one record: 1 MB, unless message.max.bytes was raised. Those of a
// member that is asked for thousands of partitions may be much of that, and must be read.
const maxData = 16 << 20

// ErrForeign says that user data are not from a killick worker of a version that this one understands.
var ErrForeign = errors.New("balance: user data of another kind or version")

// The fields are short: Kafka stores the data of all members in one record of __consumer_offsets.
type factsJSON struct {
	V        int                `json:"v"`
	Place    string             `json:"place,omitempty"`
	Number   int32              `json:"n"`
	Shape    string             `json:"shape"`
	Plan     int64              `json:"plan,omitempty"`
	Stopping bool               `json:"stopping,omitempty"`
	Single   bool               `json:"single,omitempty"`
	Released map[string][]int32 `json:"released,omitempty"`
}

type grantJSON struct {
	V       int                `json:"v"`
	Number  int32              `json:"n"`
	Asks    map[string][]int32 `json:"asks,omitempty"`
	AllStop bool               `json:"allstop,omitempty"`
	Standby string             `json:"standby,omitempty"`
	Shape   string             `json:"shape"`
	Plan    int64              `json:"plan,omitempty"`
	Stops   bool               `json:"stopping,omitempty"`
}

// Group returns parts by topic, the ids in their order.
func Group(parts []Part) map[string][]int32 {
	if len(parts) == 0 {
		return nil
	}
	m := map[string][]int32{}
	for _, p := range slices.SortedFunc(slices.Values(parts), compareParts) {
		m[p.Topic] = append(m[p.Topic], p.ID)
	}
	return m
}

// Parts is the inverse of Group.
func Parts(m map[string][]int32) []Part {
	var parts []Part
	for _, t := range slices.Sorted(maps.Keys(m)) {
		for _, id := range m[t] {
			parts = append(parts, Part{t, id})
		}
	}
	slices.SortFunc(parts, compareParts)
	return slices.Compact(parts)
}

// Encode returns f as a member's user data.
func (f *Facts) Encode() []byte {
	return encode(factsJSON{version, f.Place, f.Number, f.Shape, f.Plan, f.Stopping, f.Single, Group(f.Released)})
}

// DecodeFacts reads a member's user data. Errors are ErrForeign.
func DecodeFacts(data []byte) (Facts, error) {
	var j factsJSON
	if err := decode(data, &j, func() int { return j.V }); err != nil {
		return Facts{}, err
	}
	if j.Shape == "" || j.Number < NoNumber {
		return Facts{}, fmt.Errorf("%w: shape %q, number %d", ErrForeign, j.Shape, j.Number)
	}
	return Facts{j.Place, j.Number, j.Shape, j.Plan, j.Stopping, j.Single, Parts(j.Released)}, nil
}

// Encode returns what of g is not in Kafka's own part of an assignment, as user data.
func (g *Grant) Encode() []byte {
	return encode(grantJSON{version, g.Number, Group(g.Asks), g.AllStop, g.Standby, g.Echo.Shape, g.Echo.Plan, g.Echo.Stopping})
}

// DecodeGrant reads an assignment's user data; Parts are not in them. Errors are ErrForeign.
func DecodeGrant(data []byte) (Grant, error) {
	var j grantJSON
	if err := decode(data, &j, func() int { return j.V }); err != nil {
		return Grant{}, err
	}
	if j.Number < 0 {
		return Grant{}, fmt.Errorf("%w: number %d", ErrForeign, j.Number)
	}
	return Grant{Asks: Parts(j.Asks), Number: j.Number, AllStop: j.AllStop, Standby: j.Standby,
		Echo: Echo{j.Shape, j.Plan, j.Stops}}, nil
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings, numbers and lists of them
	}
	return b
}

func decode(data []byte, into any, v func() int) error {
	if len(data) > maxData {
		return fmt.Errorf("%w: %d bytes, more than %d", ErrForeign, len(data), maxData)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%w: %v", ErrForeign, err)
	}
	if n := v(); n != version {
		return fmt.Errorf("%w: version %d, this worker knows %d", ErrForeign, n, version)
	}
	return nil
}
