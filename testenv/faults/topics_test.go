package faults

import (
	"reflect"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Requests name topics in fields that are told by their names: those that are known to do so are.
func TestWhatNamesTopics(t *testing.T) {
	names := map[kmsg.Key]bool{
		kmsg.Produce: true, kmsg.Fetch: true, kmsg.ListOffsets: true, kmsg.Metadata: true, kmsg.OffsetCommit: true, kmsg.OffsetFetch: true,
		kmsg.TxnOffsetCommit: true, kmsg.AddPartitionsToTxn: true, kmsg.DeleteRecords: true, kmsg.CreateTopics: true, kmsg.DeleteTopics: true,
		kmsg.CreatePartitions: true, kmsg.OffsetForLeaderEpoch: true, kmsg.OffsetDelete: true, kmsg.ShareFetch: true, kmsg.DescribeProducers: true,
		kmsg.ConsumerGroupHeartbeat: true, kmsg.ElectLeaders: true, kmsg.WriteTxnMarkers: true,
		kmsg.ApiVersions: false, kmsg.Heartbeat: false, kmsg.JoinGroup: false, kmsg.SyncGroup: false, kmsg.LeaveGroup: false, kmsg.FindCoordinator: false,
		kmsg.InitProducerID: false, kmsg.EndTxn: false, kmsg.AddOffsetsToTxn: false, kmsg.SASLAuthenticate: false, kmsg.DescribeGroups: false,
	}
	var ids topics
	id := [16]byte{1}
	ids.learn(id, "in")
	for key, want := range names {
		req := key.Request()
		if got := canName(reflect.TypeOf(req)); got != want {
			t.Errorf("%s: %v", key.Name(), got)
		}
		fill(reflect.ValueOf(req))
		if ids.named(reflect.ValueOf(req), func(string) bool { return true }) {
			t.Errorf("%s names a topic, and has none", key.Name())
		}
		nameTopic(reflect.ValueOf(req), id)
		if got := ids.named(reflect.ValueOf(req), func(n string) bool { return n == "in" }); got != want {
			t.Errorf("%s with a topic: %v", key.Name(), got)
		}
	}
}

// nameTopic sets every field in which a request names a topic.
func nameTopic(v reflect.Value, id [16]byte) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			nameTopic(v.Elem(), id)
		}
	case reflect.Slice:
		for i := range v.Len() {
			nameTopic(v.Index(i), id)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Field(i)
			switch in := "in"; {
			case v.Type().Field(i).Name == "TopicID":
				f.Set(reflect.ValueOf(id))
			case !strings.Contains(v.Type().Field(i).Name, "Topic"):
				nameTopic(f, id)
			case f.Kind() == reflect.String:
				f.SetString(in)
			case f.Type() == reflect.TypeFor[*string]():
				f.Set(reflect.ValueOf(&in))
			case f.Type() == reflect.TypeFor[[]string]():
				f.Set(reflect.ValueOf([]string{in}))
			default:
				nameTopic(f, id)
			}
		}
	}
}
