package faults

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// hostPort finds, in an answer, what may be the address of a broker: structs with a node, host and port.
func hostPort(v reflect.Value, f func(host, port reflect.Value)) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Slice:
		if v.Kind() == reflect.Pointer && !v.IsNil() {
			hostPort(v.Elem(), f)
		}
		for i := 0; v.Kind() == reflect.Slice && i < v.Len(); i++ {
			hostPort(v.Index(i), f)
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[kmsg.Tags]() {
			return
		}
		if h, p := v.FieldByName("Host"), v.FieldByName("Port"); h.IsValid() && p.IsValid() {
			f(h, p)
		}
		for i := range v.NumField() {
			hostPort(v.Field(i), f)
		}
	}
}

// fill makes every slice of an answer one element long.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.Type().Elem().Kind() == reflect.Struct && v.CanSet() && v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		if !v.IsNil() {
			fill(v.Elem())
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Struct {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			fill(v.Index(0))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type() != reflect.TypeFor[kmsg.Tags]() && v.Field(i).CanSet() {
				fill(v.Field(i))
			}
		}
	}
}

// notForClients are answers that name hosts which no client connects to.
var notForClients = map[kmsg.Key]string{
	kmsg.Vote:                  "between controllers",
	kmsg.BeginQuorumEpoch:      "between controllers",
	kmsg.EndQuorumEpoch:        "between controllers",
	kmsg.FetchSnapshot:         "between controllers",
	kmsg.DescribeQuorum:        "listeners of controllers",
	kmsg.UpdateRaftVoter:       "a controller",
	kmsg.StreamsGroupDescribe:  "endpoints of users' own programs",
	kmsg.StreamsGroupHeartbeat: "endpoints of users' own programs",
}

// TestEveryAddress: every answer that kmsg knows, in every version. One that has an address of a broker
// gets that of the proxy in it, and nothing else is changed.
func TestEveryAddress(t *testing.T) {
	_, p := between(t)
	l := mustLink(t, p, "127.0.0.1:4242")
	rewritten := map[kmsg.Key]bool{}
	for key := kmsg.Key(0); key < 200; key++ {
		kind := key.Request()
		if kind == nil {
			continue
		}
		for v := int16(0); v <= kind.MaxVersion(); v++ {
			resp := key.Response()
			resp.SetVersion(v)
			fill(reflect.ValueOf(resp))
			hostPort(reflect.ValueOf(resp), func(h, port reflect.Value) {
				if h.Kind() == reflect.String {
					h.SetString("localhost")
				}
				if port.CanInt() {
					port.SetInt(4242)
				} else {
					port.SetUint(4242)
				}
			})
			header := []byte{0, 0, 0, 1}
			if resp.IsFlexible() && key != kmsg.ApiVersions {
				header = append(header, 1, 99, 2, 7, 7) // a tag that nobody knows
			}
			in := encodeAnswer(header, resp)
			// What the version really has.
			back, _, err := decodeAnswer(in, key, v)
			if err != nil {
				t.Fatalf("%s, version %d: %v", key.Name(), v, err)
			}
			has := 0
			hostPort(reflect.ValueOf(back), func(h, port reflect.Value) {
				if h.Kind() == reflect.String && h.String() == "localhost" {
					has++
				}
			})
			if _, excused := notForClients[key]; excused {
				if readsAnswer(key, v) {
					t.Errorf("%s is looked into", key.Name())
				}
				continue
			}
			if has > 0 && !readsAnswer(key, v) {
				t.Errorf("%s, version %d, has %d addresses of brokers, and is not looked into", key.Name(), v, has)
				continue
			}
			if !readsAnswer(key, v) || key == kmsg.ApiVersions {
				continue
			}
			out, err := p.rewrite(bytes.Clone(in), key, v)
			if err != nil {
				t.Fatalf("%s, version %d: %v", key.Name(), v, err)
			}
			got, h, err := decodeAnswer(out, key, v)
			if err != nil || !bytes.Equal(h, header) {
				t.Fatalf("%s, version %d: header %v, %v", key.Name(), v, h, err)
			}
			hostPort(reflect.ValueOf(got), func(h, port reflect.Value) {
				if h.String() == loopback && port.Int() == int64(l.port) {
					has--
					h.SetString("localhost")
					port.SetInt(4242)
					rewritten[key] = true
				}
			})
			if has != 0 {
				t.Errorf("%s, version %d: %d addresses were left", key.Name(), v, has)
			}
			if !bytes.Equal(encodeAnswer(header, got), in) {
				t.Errorf("%s, version %d: something else has changed", key.Name(), v)
			}
		}
	}
	if len(rewritten) != 7 {
		t.Errorf("rewritten: %v", rewritten)
	}
}

// A coordinator that is not there has no address, and gets none.
func TestNoAddress(t *testing.T) {
	_, p := between(t)
	resp := kmsg.NewPtrFindCoordinatorResponse()
	resp.SetVersion(3)
	resp.ErrorCode, resp.NodeID, resp.Port = kerr.CoordinatorNotAvailable.Code, -1, -1
	in := encodeAnswer([]byte{0, 0, 0, 1, 0}, resp)
	out, err := p.rewrite(bytes.Clone(in), kmsg.FindCoordinator, 3)
	if err != nil || !bytes.Equal(in, out) || len(p.links) != 1 {
		t.Errorf("%x became %x, %v", in, out, err)
	}
}

// A broker that is newer than kmsg is not spoken to in versions that the proxy cannot read; one that does
// not know the client's version of ApiVersions answers in version 0.
func TestVersions(t *testing.T) {
	_, p := between(t)
	newest := kmsg.NewPtrMetadataRequest().MaxVersion()
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.SetVersion(3)
	resp.ApiKeys = []kmsg.ApiVersionsResponseApiKey{
		{ApiKey: int16(kmsg.Metadata), MinVersion: 0, MaxVersion: newest + 1},
		{ApiKey: int16(kmsg.Fetch), MinVersion: 4, MaxVersion: 11},
		{ApiKey: int16(kmsg.Produce), MinVersion: 1000, MaxVersion: 1001},
		{ApiKey: 12345, MinVersion: 0, MaxVersion: 1000},
	}
	out, err := p.rewrite(encodeAnswer([]byte{0, 0, 0, 1}, resp), kmsg.ApiVersions, 3)
	if err != nil {
		t.Fatal(err)
	}
	got, _, err := decodeAnswer(out, kmsg.ApiVersions, 3)
	if err != nil {
		t.Fatal(err)
	}
	keys := got.(*kmsg.ApiVersionsResponse).ApiKeys
	if len(keys) != 3 || keys[0].MaxVersion != newest || keys[1].MaxVersion != 11 || keys[1].MinVersion != 4 || keys[2].ApiKey != 12345 || keys[2].MaxVersion != 1000 {
		t.Errorf("%+v", keys)
	}

	old := kmsg.NewPtrApiVersionsResponse()
	old.ErrorCode = kerr.UnsupportedVersion.Code
	old.ApiKeys = []kmsg.ApiVersionsResponseApiKey{{ApiKey: 18, MaxVersion: 3}}
	in := encodeAnswer([]byte{0, 0, 0, 1}, old)
	if out, err := p.rewrite(bytes.Clone(in), kmsg.ApiVersions, 4); err != nil || !bytes.Equal(in, out) {
		t.Errorf("%x became %x, %v", in, out, err)
	}
}
